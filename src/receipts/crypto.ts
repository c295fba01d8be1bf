import type { Hex } from './hex.ts'

/** The chain's hash, 32 bytes: OpenSSL's in Node, viem's in a browser. */
export type Keccak256 = (bytes: Uint8Array) => Uint8Array

/** What verification needs from its platform: `src/signer/receipt-crypto.ts` in Node, `viem-crypto.ts` in a browser. */
export type ReceiptCrypto = {
  readonly keccak256: Keccak256
  /** The signer's address in lower case; undefined when no key can have made the signature. */
  recoverAddress(digest: Uint8Array, signature: Hex): Promise<Hex | undefined> | Hex | undefined
}
