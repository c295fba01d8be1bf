import { hash } from 'node:crypto'
import type { Hex } from './address.ts'

/** What a sequence of nonces is for. Each has numbers of its own, so no two can meet. */
export type NonceUse = 'authorization' | 'return' | 'deposit'

export const sequenceMax = 2n ** 63n - 1n
export const epochMax = 2 ** 32 - 1

const keyDigits = 48
const sequenceDigits = 16

/**
 * The nonce of an account's n-th transfer: a 192-bit key and the 64-bit sequence, so that 256 neighbours share one word of
 * the gateway's bitmap. It follows from the ledger's row alone: asking again, on any node, after any crash, gives the same.
 * A new epoch begins all sequences anew, for a ledger that was restored from an older copy.
 */
export function nonceOf(use: NonceUse, account: string, epoch: number, sequence: bigint): Hex {
  if (sequence < 0n || sequence > sequenceMax) throw new RangeError(`sequence ${sequence} is out of range`)
  if (!Number.isInteger(epoch) || epoch < 0 || epoch > epochMax) throw new RangeError(`epoch ${epoch} is out of range`)
  const key = hash('sha256', `penny nonce\n${use}\n${account}\n${epoch}`).slice(0, keyDigits)
  return `0x${key}${sequence.toString(16).padStart(sequenceDigits, '0')}`
}

/** Names one withdrawal or payout for good: the gateway pays one with the same salt and terms once. */
export function saltOf(use: 'withdrawal' | 'payout', id: string): Hex {
  return `0x${hash('sha256', `penny salt\n${use}\n${id}`)}`
}
