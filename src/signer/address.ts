import { keccak256 } from './keccak.ts'

/** Bytes as the chain's programs write them: `0x` and hex digits, here always in lower case. */
export type Hex = `0x${string}`

/** A place on the chain: 20 bytes. Branded, so that no unchecked text passes for one. */
export type Address = Hex & { readonly __brand: 'Address' }

export const zeroAddress = `0x${'0'.repeat(40)}` as Address

/** Undefined when the text is no address, or when its mixed case says that a digit was mistyped (EIP-55). */
export function parseAddress(text: string): Address | undefined {
  if (!/^0x[0-9a-fA-F]{40}$/.test(text)) return undefined
  const address = text.toLowerCase() as Address
  const digits = text.slice(2)
  const hasChecksum = digits !== digits.toLowerCase() && digits !== digits.toUpperCase()
  return hasChecksum && checksummed(address) !== text ? undefined : address
}

const rememberedMax = 10_000
const remembered = new Map<Address, Hex>()

/** The form for people and for other programs: the case of the letters is a checksum (EIP-55). */
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
