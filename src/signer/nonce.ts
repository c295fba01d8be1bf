import { hash } from 'node:crypto'
import type { Hex } from '../receipts/hex.ts'

/** What a transfer is for. Each operation has its own sequence, so nonces of different operations never collide. */
export type TransferOperation = 'authorization' | 'return' | 'refund' | 'deposit'

export const sequenceMax = 2n ** 63n - 1n
export const epochMax = 2 ** 32 - 1

const keyDigits = 48
const sequenceDigits = 16

/**
 * The nonce of an account's n-th transfer: a 192-bit key and the 64-bit sequence, so that 256 consecutive nonces share one word of
 * the gateway's bitmap. It depends only on the ledger's row: every node computes the same nonce again after any crash. A new epoch
 * restarts all sequences, for a ledger that was restored from an older backup.
 */
export function nonceOf(operation: TransferOperation, account: string, epoch: number, sequence: bigint): Hex {
  if (sequence < 0n || sequence > sequenceMax) throw new RangeError(`sequence ${sequence} is out of range`)
  if (!Number.isInteger(epoch) || epoch < 0 || epoch > epochMax) throw new RangeError(`epoch ${epoch} is out of range`)
  const key = hash('sha256', `penny nonce\n${operation}\n${account}\n${epoch}`).slice(0, keyDigits)
  return `0x${key}${sequence.toString(16).padStart(sequenceDigits, '0')}`
}

const ownSequenceMax = 2n ** 32n

/**
 * Whether a nonce has the form of `nonceOf`, a hash and a small sequence. Those of wallets are random; a wallet that counts has zeros in
 * place of the hash.
 */
export function isOwnNonce(nonce: Hex): boolean {
  return BigInt(nonce) > sequenceMax && BigInt(`0x${nonce.slice(-sequenceDigits)}`) < ownSequenceMax
}

/** Identifies one withdrawal or payout permanently: the gateway pays the same salt and terms only once. */
export function saltOf(use: 'withdrawal' | 'payout', id: string): Hex {
  return `0x${hash('sha256', `penny salt\n${use}\n${id}`)}`
}
