import { hash } from 'node:crypto'
import type { Hex } from 'viem'

/** The chain's hash, by OpenSSL: viem's, in JavaScript, takes more than ten times as long. */
export function keccak256(data: Hex | Uint8Array): Hex {
  return `0x${hash('keccak-256', typeof data === 'string' ? Buffer.from(data.slice(2), 'hex') : data)}`
}

/** Values in words of 32 bytes, as the ABI and EIP-712 encode static types: numbers and addresses at the right end. */
export function encodeWords(values: readonly (Hex | bigint)[]): Hex {
  const words = values.map((value) =>
    (typeof value === 'bigint' ? value.toString(16) : value.slice(2)).padStart(64, '0'),
  )
  return `0x${words.join('')}`
}
