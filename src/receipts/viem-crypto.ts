import { keccak256, recoverAddress } from 'viem'
import type { ReceiptCrypto } from './crypto.ts'
import type { Hex } from './hex.ts'

/** Cryptography in plain JavaScript, for browsers. */
export const viemCrypto: ReceiptCrypto = {
  keccak256: (bytes) => keccak256(bytes, 'bytes'),
  async recoverAddress(digest, signature) {
    try {
      return (await recoverAddress({ hash: digest, signature })).toLowerCase() as Hex
    } catch {
      // The library throws on numbers that are not on the curve.
      return undefined
    }
  },
}
