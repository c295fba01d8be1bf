import { hash } from 'node:crypto'
import type { Hex } from 'viem'

/** The chain's hash, by OpenSSL: viem's version in JavaScript takes more than ten times as long. */
export function keccak256(data: Hex | Uint8Array): Hex {
  return `0x${hash('keccak-256', typeof data === 'string' ? Buffer.from(data.slice(2), 'hex') : data)}`
}

/** Encodes values as words of 32 bytes, like the ABI and EIP-712 do for static types: numbers and addresses are right-aligned. */
export function encodeWords(values: readonly (Hex | bigint)[]): Hex {
  const words = values.map((value) =>
    (typeof value === 'bigint' ? value.toString(16) : value.slice(2)).padStart(64, '0'),
  )
  return `0x${words.join('')}`
}
