import type { IncomingHttpHeaders, IncomingMessage } from 'node:http'
import { isIPv4, isIPv6 } from 'node:net'

/** The client of a request, as seen on the connection. */
export type Visitor = {
  header(name: string): string | undefined
  readonly address: string
  /** The IPv4 address, or the /56 of an IPv6 address. */
  readonly network: string
  /** Whether it runs on this machine, without a proxy in between. */
  readonly isLocal: boolean
}

/** Behind a trusted proxy the client is the last entry of the forwarding header. Clients can forge only earlier entries. */
export function visitorOf(incoming: IncomingMessage, trustProxy: boolean): Visitor {
  const { headers } = incoming
  const forwarded = single(headers, 'x-forwarded-for')
  const socketAddress = incoming.socket.remoteAddress ?? ''
  const address = (trustProxy ? forwarded?.split(',').at(-1)?.trim() : undefined) ?? socketAddress
  const isForwarded = forwarded !== undefined || headers.forwarded !== undefined || headers['x-real-ip'] !== undefined
  return {
    header: (name) => single(headers, name),
    address,
    network: networkOf(address),
    isLocal: isLoopbackAddress(address) && isLoopbackAddress(socketAddress) && (trustProxy || !isForwarded),
  }
}

function single(headers: IncomingHttpHeaders, name: string): string | undefined {
  const value = headers[name]
  return Array.isArray(value) ? value.join(', ') : value
}

function isLoopbackAddress(address: string): boolean {
  return /^(::ffff:)?127\./.test(address) || address === '::1'
}

const addressLengthMax = 64

/**
 * The IPv4 address, also for IPv4-mapped IPv6, or the /56 of an IPv6 address, which is what providers assign to one customer. With /64
 * each customer would have 256 networks or more; with /48 neighbours would be counted together.
 */
export function networkOf(address: string): string {
  const plain = address.slice(0, addressLengthMax).replace(/%.*$/, '')
  if (isIPv4(plain)) return plain
  const groups = groupsOf(plain)
  if (groups === undefined) return plain
  const isMapped = groups.slice(0, 5).every((group) => group === 0) && groups[5] === 0xffff
  if (isMapped) return [groups[6]! >> 8, groups[6]! & 255, groups[7]! >> 8, groups[7]! & 255].join('.')
  const [first, second, third, fourth] = groups as [number, number, number, number]
  return [first, second, third, fourth & 0xff00].map((group) => group.toString(16)).join(':')
}

/** The eight groups of an IPv6 address in any spelling; undefined for anything else. */
function groupsOf(address: string): readonly number[] | undefined {
  if (!isIPv6(address)) return undefined
  // The last four bytes may be written as an IPv4 address.
  const hex = address.replace(/(\d+)\.(\d+)\.(\d+)\.(\d+)$/, (_, ...bytes: string[]) => {
    const [a, b, c, d] = bytes.slice(0, 4).map(Number) as [number, number, number, number]
    return `${(a * 256 + b).toString(16)}:${(c * 256 + d).toString(16)}`
  })
  const [left = '', right] = hex.split('::')
  const read = (text: string) => (text === '' ? [] : text.split(':').map((group) => Number.parseInt(group, 16)))
  const [head, tail] = [read(left), read(right ?? '')]
  return [...head, ...Array<number>(8 - head.length - tail.length).fill(0), ...tail]
}
