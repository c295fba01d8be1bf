import { BlockList, type IPVersion, isIPv4, isIPv6 } from 'node:net'

// Decides which addresses web fetch and webhooks may connect to. Pure: no DNS lookup, no socket. The lists follow the IANA
// special-purpose registries. An address that is not known to be public is refused.

/** Every IPv4 range that is not public unicast. */
const refusedV4 = listOf('ipv4', [
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
])

/** All public IPv6 addresses are in this block. */
const publicV6 = listOf('ipv6', ['2000::/3'])

/** Parts of that block that are not public. A tunnel address embeds an IPv4 address that its author chose. */
const refusedV6 = listOf('ipv6', [
  '2001::/23', // protocol assignments: Teredo, benchmarks, ORCHID
  '2001:db8::/32', // documentation
  '2002::/16', // 6to4
  '3fff::/20', // documentation
])

/** IPv6 forms in which sockets and DNS64 resolvers return an IPv4 address, without its 32 bits. The embedded address is checked instead. */
const carriersOfV4 = [
  0xffffn, // IPv4-mapped, ::ffff:0:0/96
  0x64_ff9bn << 64n, // NAT64, the well-known prefix 64:ff9b::/96
]

/**
 * True for a public unicast address. Accepts the canonical forms that DNS, sockets and the URL parser return. Any other text
 * (`127.1`, a zone such as `fe80::1%eth0`, a name) is not an address, so it is not public.
 */
export function isPublicAddress(address: string): boolean {
  const value = valueV6(address)
  const v4 = isIPv4(address) ? address : value === undefined ? undefined : carriedV4(value)
  if (v4 !== undefined) return !refusedV4.check(v4)
  return value !== undefined && publicV6.check(address, 'ipv6') && !refusedV6.check(address, 'ipv6')
}

/**
 * The same text for every spelling of an address, so that spellings can be compared. An IPv4 address in IPv6 form equals the IPv4
 * address.
 */
export function addressKey(address: string): string {
  const value = valueV6(address)
  return value === undefined ? address : (carriedV4(value) ?? `v6:${value.toString(16)}`)
}

/** The IPv4 address in an IPv6 form of one. */
function carriedV4(value: bigint): string | undefined {
  return carriersOfV4.includes(value >> 32n) ? textV4(value) : undefined
}

/** The last 32 bits as an IPv4 address. */
export function textV4(value: bigint): string {
  return [24n, 16n, 8n, 0n].map((shift) => (value >> shift) & 0xffn).join('.')
}

function listOf(family: IPVersion, ranges: readonly string[]): BlockList {
  const list = new BlockList()
  for (const [address, bits] of ranges.map((range) => range.split('/'))) list.addSubnet(address!, Number(bits), family)
  return list
}

/** The 128 bits of an IPv6 address in any spelling; undefined for anything else, a zone included. */
export function valueV6(address: string): bigint | undefined {
  if (!isIPv6(address) || address.includes('%')) return undefined
  const [head = '', tail] = address.split('::')
  const before = groups(head)
  const after = groups(tail ?? '')
  const zeros = Array<bigint>(8 - before.length - after.length).fill(0n)
  return [...before, ...zeros, ...after].reduce((value, part) => (value << 16n) | part, 0n)
}

/** Splits into groups of 16 bits. An IPv4 address at the end makes two groups. */
function groups(text: string): bigint[] {
  if (text === '') return []
  return text.split(':').flatMap((part) => {
    if (!part.includes('.')) return [BigInt(`0x${part}`)]
    const [a, b, c, d] = part.split('.').map(BigInt) as [bigint, bigint, bigint, bigint]
    return [(a << 8n) | b, (c << 8n) | d]
  })
}
