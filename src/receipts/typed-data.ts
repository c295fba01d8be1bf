import type { Keccak256 } from './crypto.ts'
import { type Hex, writeHex } from './hex.ts'

// EIP-712 for the two structures that the issuer signs: payments and snapshots of liabilities. `src/signer/typed-data.ts` does the same
// with Node's buffers; this file also runs in browsers.

/** Which service a receipt belongs to. A receipt of the sandbox must never pass for one of production. */
export type ReceiptDomain = { readonly chainId: bigint; readonly gatewayWallet: Hex }

const receipts = { name: 'PennyReceipt', version: '2' }

const domainType = 'EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)'
const wordBytes = 32

/** A hash, an address, or an integer; negative integers are written in two's complement. */
export type Word = Uint8Array | Hex | bigint

export function domainSeparator(
  { chainId, gatewayWallet }: ReceiptDomain,
  keccak256: Keccak256,
  signedAs = receipts,
): Uint8Array {
  const { name, version } = signedAs
  const [type, ...names] = [domainType, name, version].map((text) => hashText(text, keccak256))
  return hashWords([type!, ...names, chainId, gatewayWallet], keccak256)
}

/** What is signed of a structure: its hash under a domain. */
export function signedDigest(
  structHash: Uint8Array,
  domain: ReceiptDomain,
  keccak256: Keccak256,
  signedAs = receipts,
): Uint8Array {
  const message = new Uint8Array(66)
  message.set([0x19, 0x01])
  message.set(domainSeparator(domain, keccak256, signedAs), 2)
  message.set(structHash, 34)
  return keccak256(message)
}

export function hashText(text: string, keccak256: Keccak256): Uint8Array {
  return keccak256(new TextEncoder().encode(text))
}

/** The hash over values of 32 bytes each. */
export function hashWords(words: readonly Word[], keccak256: Keccak256): Uint8Array {
  const bytes = new Uint8Array(words.length * wordBytes)
  for (const [index, word] of words.entries()) writeWord(word, bytes, index * wordBytes)
  return keccak256(bytes)
}

function writeWord(word: Word, target: Uint8Array, offset: number): void {
  if (typeof word === 'bigint') {
    // Exact for unsigned and for signed integers of 256 bits; the caller keeps them within 64 bits.
    writeHex(`0x${BigInt.asUintN(256, word).toString(16).padStart(64, '0')}`, wordBytes, target, offset)
  } else if (typeof word === 'string') {
    const size = (word.length - 2) / 2
    writeHex(word, size, target, offset + wordBytes - size)
  } else target.set(word, offset)
}
