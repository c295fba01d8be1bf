import { once } from 'node:events'
import { connect as connectTcp, isIP, isIPv4, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { addressKey, isPublicAddress } from './addresses.ts'
import type { Resolve } from './resolve.ts'
import { hostOf, refuseLocalHost } from './stranger-url.ts'
import { FetchFailedError } from './web-fetch.ts'

/** Begins a connection to an address that has been checked. */
export type Dial = (address: string, port: number) => Socket

export type SocketOptions = {
  readonly resolve: Resolve
  /** Left out: a TCP connection to that very address. */
  readonly dial?: Dial | undefined
  /** Our own names: the service does not read itself. */
  readonly ownHosts: readonly string[]
  /** Addresses that this machine listens on; public ones among them would pass every other rule. */
  readonly ownAddresses: readonly string[]
  /** Certificates to trust instead of the usual ones. */
  readonly authorities?: string | undefined
  readonly connectMsMax: number
}

const addressesMax = 32
const attemptsMax = 3

/**
 * A connection to the stranger's host, encrypted where the address says https, with no byte sent yet. The name is looked
 * up once, every answer must be public, the connection goes to a checked answer itself (a second look-up could say
 * something else), and where the socket says it has arrived is checked once more.
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
  // One bad answer spoils all: a name that is public and private at once is made to be tried twice.
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

/** Undefined when nobody answers there: the next address may be tried. */
async function dialChecked(
  address: string,
  port: number,
  options: SocketOptions,
  signal: AbortSignal,
): Promise<Socket | undefined> {
  const socket = (options.dial ?? dialTcp)(address, port)
  // A reset can come at any moment; whoever waits for the socket hears of it, and nobody waiting is no crash.
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
    // An address has no server name to ask for; the certificate is checked against it all the same.
    ...(isIP(host) === 0 && { servername: host }),
    ...(options.authorities !== undefined && { ca: options.authorities }),
    ALPNProtocols: ['http/1.1'],
    minVersion: 'TLSv1.2',
    // Said out loud: an environment variable could have switched it off.
    rejectUnauthorized: true,
  })
  secure.on('error', () => {})
  if (await settles(secure, 'secureConnect', options.connectMsMax, signal)) return secure
  socket.destroy()
  throw new UnreachableError()
}

/** Whether the event came in time. If not, the socket is gone. */
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
 * One sentence for a name that does not exist, one that leads into a private network, and a server that does not answer:
 * which of them it was would tell a stranger about our network.
 */
export class UnreachableError extends FetchFailedError {
  constructor() {
    super('No page could be reached at this address.')
  }
}
