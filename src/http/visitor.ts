import type { IncomingHttpHeaders, IncomingMessage } from 'node:http'
import { isIPv4 } from 'node:net'
import { textV4, valueV6 } from '../tools/addresses.ts'

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
  const value = valueV6(plain)
  if (value === undefined) return plain
  if (value >> 32n === 0xffffn) return textV4(value)
  return [112n, 96n, 80n, 64n]
    .map((shift) => ((value >> shift) & (shift === 64n ? 0xff00n : 0xffffn)).toString(16))
    .join(':')
}
