import { once } from 'node:events'
import { connect as connectTcp, isIP, isIPv4, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { addressKey, isPublicAddress } from './addresses.ts'
import type { Resolve } from './resolve.ts'
import { hostOf, refuseLocalHost } from './untrusted-url.ts'
import { FetchFailedError } from './web-fetch.ts'

/** Opens a connection to an address that was already checked. */
export type Dial = (address: string, port: number) => Socket

export type SocketOptions = {
  readonly resolve: Resolve
  /** Default: a TCP connection to exactly that address. */
  readonly dial?: Dial | undefined
  /** Our own host names: the service must not fetch from itself. */
  readonly ownHosts: readonly string[]
  /** Addresses that this machine listens on. Public ones among them would pass every other rule. */
  readonly ownAddresses: readonly string[]
  /** Certificate authorities to trust instead of the default ones. */
  readonly authorities?: string | undefined
  readonly connectMsMax: number
}

const addressesMax = 32
const attemptsMax = 3

/**
 * Connects to an untrusted host, with TLS if the URL is https, and sends nothing. Guards against DNS rebinding: the name is
 * resolved once, every answer must be public, the connection goes to a checked answer (a second lookup could return another one),
 * and the socket's remote address is checked again.
 */
export async function openSocket(url: URL, options: SocketOptions, signal: AbortSignal): Promise<Socket> {
  refuseLocalHost(url)
  const addresses = await checkedAddresses(hostOf(url), options, signal)
  for (const address of addresses.slice(0, attemptsMax)) {
    const socket = await dialChecked(address, portOf(url), options, signal)
    if (socket !== undefined) return url.protocol === 'https:' ? encrypt(socket, url, options, signal) : socket
  }
  throw new UnreachableError()
}

async function checkedAddresses(host: string, options: SocketOptions, signal: AbortSignal): Promise<readonly string[]> {
  if (options.ownHosts.includes(host)) throw new UnreachableError()
  const addresses = isIP(host) === 0 ? await lookUp(host, options.resolve, signal) : [host]
  if (addresses.length === 0 || addresses.length > addressesMax) throw new UnreachableError()
  // One bad answer refuses the name: a name with public and private addresses is an attempt at DNS rebinding.
  if (!addresses.every((address) => isAllowed(address, options))) throw new UnreachableError()
  return addresses.toSorted((one, other) => Number(isIPv4(other)) - Number(isIPv4(one)))
}

async function lookUp(host: string, resolve: Resolve, signal: AbortSignal): Promise<readonly string[]> {
  try {
    return await resolve(host, signal)
  } catch {
    signal.throwIfAborted()
    throw new UnreachableError()
  }
}

function isAllowed(address: string, { ownAddresses }: SocketOptions): boolean {
  const key = addressKey(address)
  return isPublicAddress(address) && !ownAddresses.some((own) => addressKey(own) === key)
}

/** Returns undefined when nothing answers there, so that the next address can be tried. */
async function dialChecked(
  address: string,
  port: number,
  options: SocketOptions,
  signal: AbortSignal,
): Promise<Socket | undefined> {
  const socket = (options.dial ?? dialTcp)(address, port)
  // A reset can arrive at any time. Waiting callers see the error; without this listener it would crash the process when no caller
  // waits.
  socket.on('error', () => {})
  if (!(await settles(socket, 'connect', options.connectMsMax, signal))) return undefined
  if (isAllowed(socket.remoteAddress ?? '', options)) return socket
  socket.destroy()
  throw new UnreachableError()
}

function dialTcp(address: string, port: number): Socket {
  return connectTcp({ host: address, port, autoSelectFamily: false, noDelay: true })
}

async function encrypt(socket: Socket, url: URL, options: SocketOptions, signal: AbortSignal): Promise<Socket> {
  const host = hostOf(url)
  const secure = connectTls({
    socket,
    host,
    // SNI takes no IP addresses. The certificate is still checked against the address.
    ...(isIP(host) === 0 && { servername: host }),
    ...(options.authorities !== undefined && { ca: options.authorities }),
    ALPNProtocols: ['http/1.1'],
    minVersion: 'TLSv1.2',
    // Explicit, because NODE_TLS_REJECT_UNAUTHORIZED could have disabled it.
    rejectUnauthorized: true,
  })
  secure.on('error', () => {})
  if (await settles(secure, 'secureConnect', options.connectMsMax, signal)) return secure
  socket.destroy()
  throw new UnreachableError()
}

/** Whether the event arrived in time. If not, the socket is destroyed. */
async function settles(socket: Socket, event: string, msMax: number, signal: AbortSignal): Promise<boolean> {
  const late = AbortSignal.timeout(msMax)
  try {
    await once(socket, event, { signal: AbortSignal.any([late, signal]) })
    return true
  } catch {
    socket.destroy()
    signal.throwIfAborted()
    return false
  }
}

function portOf(url: URL): number {
  if (url.port !== '') return Number(url.port)
  return url.protocol === 'https:' ? 443 : 80
}

/**
 * One message for a name that does not exist, a name that resolves into a private network, and a server that does not answer: the
 * difference would reveal our network to callers.
 */
export class UnreachableError extends FetchFailedError {
  constructor() {
    super('No page could be reached at this address.')
  }
}
