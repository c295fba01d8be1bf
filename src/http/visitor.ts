import type { IncomingHttpHeaders, IncomingMessage } from 'node:http'

/** Who sends a request, as far as the connection tells. */
export type Visitor = {
  header(name: string): string | undefined
  /** The client's address, or of a version 6 address its network: one customer has all of a /64. */
  readonly network: string
  /** Whether it sits at this machine, with no proxy between. */
  readonly isLocal: boolean
}

/** Behind a proxy that is trusted, the client is whom the proxy names last; what a client itself writes there stands before. */
export function visitorOf(incoming: IncomingMessage, trustProxy: boolean): Visitor {
  const { headers } = incoming
  const forwarded = single(headers, 'x-forwarded-for')
  const socketAddress = incoming.socket.remoteAddress ?? ''
  const address = (trustProxy ? forwarded?.split(',').at(-1)?.trim() : undefined) ?? socketAddress
  const isForwarded = forwarded !== undefined || headers.forwarded !== undefined || headers['x-real-ip'] !== undefined
  return {
    header: (name) => single(headers, name),
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

function networkOf(address: string): string {
  const plain = address.slice(0, addressLengthMax).replace(/^::ffff:(?=\d+\.)/, '')
  return plain.includes(':') ? plain.split(':').slice(0, 4).join(':') : plain
}
