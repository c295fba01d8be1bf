import { isIPv4, isIPv6 } from 'node:net'

// Which addresses a stranger's name may lead to. Pure: no look-up, no socket. The lists follow the IANA special-purpose
// registries; what is not known to be public is refused.

type Range = { readonly first: bigint; readonly bits: number }

/** Everything in IPv4 that is not a public unicast address. */
const refusedV4 = [
  '0.0.0.0/8', // "this" network; 0.0.0.0 is this very machine
  '10.0.0.0/8', // private
  '100.64.0.0/10', // behind a carrier's NAT; Alibaba's metadata service is among it
  '127.0.0.0/8', // loopback
  '168.63.129.16/32', // public by its number, but inside Azure it is the host's own control service
  '169.254.0.0/16', // link-local, with the metadata services of most clouds
  '172.16.0.0/12', // private
  '192.0.0.0/24', // protocol assignments; Oracle's metadata service is among them
  '192.0.2.0/24', // documentation
  '192.88.99.0/24', // the anycast relays of 6to4
  '192.168.0.0/16', // private
  '198.18.0.0/15', // benchmarks
  '198.51.100.0/24', // documentation
  '203.0.113.0/24', // documentation
  '224.0.0.0/4', // multicast
  '240.0.0.0/4', // reserved, and broadcast
].map(rangeV4)

/** IPv6 hands out public addresses from one block only. */
const publicV6 = rangeV6('2000::/3')

/** Parts of that block that lead elsewhere: tunnels carry an IPv4 address of their maker's choice. */
const refusedV6 = [
  '2001::/23', // protocol assignments: Teredo, benchmarks, ORCHID
  '2001:db8::/32', // documentation
  '2002::/16', // 6to4
  '3fff::/20', // documentation
].map(rangeV6)

/** Forms that a socket or a DNS64 resolver uses for an IPv4 address: judged as the address they carry. */
const carriersOfV4 = [
  '::ffff:0:0/96', // IPv4-mapped
  '64:ff9b::/96', // NAT64, the well-known prefix
].map(rangeV6)

/**
 * True for a public unicast address. Takes the canonical texts that DNS, sockets and the URL parser give; any other text
 * (`127.1`, a zone such as `fe80::1%eth0`, a name) is not an address and therefore not public.
 */
export function isPublicAddress(address: string): boolean {
  if (isIPv4(address)) return isPublicV4(valueV4(address))
  if (!isIPv6(address) || address.includes('%')) return false
  const value = valueV6(address)
  if (carriersOfV4.some((range) => contains(range, value, 128))) return isPublicV4(value & 0xffff_ffffn)
  return contains(publicV6, value, 128) && !refusedV6.some((range) => contains(range, value, 128))
}

/** One text per address, so that two spellings of it compare equal; IPv4 in its IPv6 forms is the IPv4 address. */
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

/** Of a valid IPv6 address without a zone. */
function valueV6(address: string): bigint {
  const [head = '', tail] = address.split('::')
  const before = groups(head)
  if (tail === undefined) return join(before)
  const after = groups(tail)
  return join([...before, ...Array<bigint>(8 - before.length - after.length).fill(0n), ...after])
}

/** Groups of 16 bits; an IPv4 address at the end counts for two. */
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
