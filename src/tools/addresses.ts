import { isIPv4, isIPv6 } from 'node:net'

// Decides which addresses web fetch and webhooks may connect to. Pure: no DNS lookup, no socket. The lists follow the IANA
// special-purpose registries. An address that is not known to be public is refused.

type Range = { readonly first: bigint; readonly bits: number }

/** Every IPv4 range that is not public unicast. */
const refusedV4 = [
  '0.0.0.0/8', // "this" network; 0.0.0.0 is this machine
  '10.0.0.0/8', // private
  '100.64.0.0/10', // carrier-grade NAT; includes Alibaba's metadata service
  '127.0.0.0/8', // loopback
  '168.63.129.16/32', // a public number, but inside Azure it is the host's control service
  '169.254.0.0/16', // link-local; includes the metadata services of most clouds
  '172.16.0.0/12', // private
  '192.0.0.0/24', // protocol assignments; includes Oracle's metadata service
  '192.0.2.0/24', // documentation
  '192.88.99.0/24', // 6to4 anycast relays
  '192.168.0.0/16', // private
  '198.18.0.0/15', // benchmarks
  '198.51.100.0/24', // documentation
  '203.0.113.0/24', // documentation
  '224.0.0.0/4', // multicast
  '240.0.0.0/4', // reserved, and broadcast
].map(rangeV4)

/** All public IPv6 addresses are in this block. */
const publicV6 = rangeV6('2000::/3')

/** Parts of that block that are not public. A tunnel address embeds an IPv4 address that its author chose. */
const refusedV6 = [
  '2001::/23', // protocol assignments: Teredo, benchmarks, ORCHID
  '2001:db8::/32', // documentation
  '2002::/16', // 6to4
  '3fff::/20', // documentation
].map(rangeV6)

/** IPv6 forms in which sockets and DNS64 resolvers return an IPv4 address. The embedded address is checked instead. */
const carriersOfV4 = [
  '::ffff:0:0/96', // IPv4-mapped
  '64:ff9b::/96', // NAT64, the well-known prefix
].map(rangeV6)

/**
 * True for a public unicast address. Accepts the canonical forms that DNS, sockets and the URL parser return. Any other text
 * (`127.1`, a zone such as `fe80::1%eth0`, a name) is not an address, so it is not public.
 */
export function isPublicAddress(address: string): boolean {
  if (isIPv4(address)) return isPublicV4(valueV4(address))
  if (!isIPv6(address) || address.includes('%')) return false
  const value = valueV6(address)
  if (carriersOfV4.some((range) => contains(range, value, 128))) return isPublicV4(value & 0xffff_ffffn)
  return contains(publicV6, value, 128) && !refusedV6.some((range) => contains(range, value, 128))
}

/**
 * The same text for every spelling of an address, so that spellings can be compared. An IPv4 address in IPv6 form equals the IPv4
 * address.
 */
export function addressKey(address: string): string {
  if (isIPv4(address)) return String(valueV4(address))
  if (!isIPv6(address) || address.includes('%')) return address
  const value = valueV6(address)
  const carried = carriersOfV4.some((range) => contains(range, value, 128))
  return carried ? String(value & 0xffff_ffffn) : `v6:${value.toString(16)}`
}

function isPublicV4(value: bigint): boolean {
  return !refusedV4.some((range) => contains(range, value, 32))
}

function contains(range: Range, value: bigint, width: number): boolean {
  const shift = BigInt(width - range.bits)
  return value >> shift === range.first >> shift
}

function rangeV4(text: string): Range {
  const [address, bits] = text.split('/')
  return { first: valueV4(address!), bits: Number(bits) }
}

function rangeV6(text: string): Range {
  const [address, bits] = text.split('/')
  return { first: valueV6(address!), bits: Number(bits) }
}

function valueV4(address: string): bigint {
  return address.split('.').reduce((value, part) => (value << 8n) | BigInt(part), 0n)
}

/** Expects a valid IPv6 address without a zone. */
function valueV6(address: string): bigint {
  const [head = '', tail] = address.split('::')
  const before = groups(head)
  if (tail === undefined) return join(before)
  const after = groups(tail)
  return join([...before, ...Array<bigint>(8 - before.length - after.length).fill(0n), ...after])
}

/** Splits into groups of 16 bits. An IPv4 address at the end makes two groups. */
function groups(text: string): bigint[] {
  if (text === '') return []
  return text.split(':').flatMap((part) => {
    if (!part.includes('.')) return [BigInt(`0x${part}`)]
    const value = valueV4(part)
    return [value >> 16n, value & 0xffffn]
  })
}

function join(parts: readonly bigint[]): bigint {
  return parts.reduce((value, part) => (value << 16n) | part, 0n)
}
