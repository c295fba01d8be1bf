/** Bytes as the chain's tools write them: `0x` and hex digits, here always lower case. */
import type { Hex } from '../receipts/hex.ts'
import { keccak256 } from './keccak.ts'

/** A chain address: 20 bytes. Branded, so that unchecked text cannot be used as one. */
export type Address = Hex & { readonly __brand: 'Address' }

export const zeroAddress = `0x${'0'.repeat(40)}` as Address

/** Returns undefined when the text is not an address, or when its mixed case fails the EIP-55 checksum (a mistyped digit). */
export function parseAddress(text: string): Address | undefined {
  if (!/^0x[0-9a-fA-F]{40}$/.test(text)) return undefined
  const address = text.toLowerCase() as Address
  const digits = text.slice(2)
  const hasChecksum = digits !== digits.toLowerCase() && digits !== digits.toUpperCase()
  return hasChecksum && checksummed(address) !== text ? undefined : address
}

const rememberedMax = 10_000
const remembered = new Map<Address, Hex>()

/** The form for people and other programs: the letter case is a checksum (EIP-55). */
export function checksummed(address: Address): Hex {
  const known = remembered.get(address)
  if (known !== undefined) return known
  if (remembered.size >= rememberedMax) remembered.clear()
  const mixed = withChecksum(address)
  remembered.set(address, mixed)
  return mixed
}

function withChecksum(address: Address): Hex {
  const digits = address.slice(2)
  const check = keccak256(digits).toString('hex')
  const mixed = Array.from(digits, (digit, index) => (check[index]! >= '8' ? digit.toUpperCase() : digit))
  return `0x${mixed.join('')}`
}
