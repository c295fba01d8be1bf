import type { Keccak256 } from './crypto.ts'
import { type Hex, writeHex } from './hex.ts'

// EIP-712 for the one structure that the issuer signs. `src/signer/typed-data.ts` does the same with Node's buffers; this file
// also runs in browsers.

/** Which service a receipt belongs to. A receipt of the sandbox must never pass for one of production. */
export type ReceiptDomain = { readonly chainId: bigint; readonly gatewayWallet: Hex }

export const domainName = 'PennyReceipt'
export const domainVersion = '2'

const domainType = 'EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)'
const wordBytes = 32

/** A hash, an address, or an integer; negative integers are written in two's complement. */
export type Word = Uint8Array | Hex | bigint

export function domainSeparator({ chainId, gatewayWallet }: ReceiptDomain, keccak256: Keccak256): Uint8Array {
  const [type, name, version] = [domainType, domainName, domainVersion].map((text) => hashText(text, keccak256))
  return hashWords([type!, name!, version!, chainId, gatewayWallet], keccak256)
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
