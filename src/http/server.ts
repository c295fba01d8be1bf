import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import { type AddressInfo, createServer as createNetServer, Server as NetServer } from 'node:net'
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises'
import type { Config } from '../config/config.ts'
import { OperatorError } from '../errors.ts'
import type { Load } from './load.ts'

const serverOptions = {
  noDelay: true,
  keepAlive: true,
  headersTimeout: 10_000,
  requestTimeout: 60_000,
  // Longer than the idle time of common load balancers: the side that closes first must be theirs.
  keepAliveTimeout: 75_000,
  maxHeaderSize: 16_384,
  // Node refuses without a word; we say what is missing.
  requireHostHeader: false,
}

/** A request that has not arrived after so long, or whose headers have not, is not waited for. */
export const arrivalMsMax = { headers: serverOptions.headersTimeout, whole: serverOptions.requestTimeout }

/** So many connections are taken however few requests are served at once: idle ones wait for their next. */
const socketsAlways = 1_000

/**
 * Connections that the kernel has opened and we have not accepted. With Node's 511, a burst of clients is reset while the event loop is
 * busy: 277 of 5,000 in ten seconds.
 */
const notAcceptedMax = 4_096

// For the ends of what is broken off, and for what their clients are told of it.
const lastWordsMsMax = 2_000
// A connection that was accepted last may not have sent its request yet.
const lateRequestMsMax = 1_000
const connectionsPollMs = 20

/** Connections that are accepted: each request in progress has one, and as many may be idle or sending their request. */
export function connectionsMaxFor(requestsMax: number): number {
  return Math.max(2 * requestsMax, socketsAlways)
}

export function openServer(requestsMax: number): Server {
  const server = createServer(serverOptions)
  server.maxConnections = connectionsMaxFor(requestsMax)
  return server
}

type Address = Pick<Config, 'host' | 'port'> & {
  /** Whether other processes of this service listen on the port too. The kernel then spreads the connections. */
  readonly isShared?: boolean
}

/**
 * Why the port cannot be had; undefined when it can. Asked before the long part of a start. The port is not kept: while nobody
 * listens, a load balancer sends its requests elsewhere.
 */
export async function portProblem(address: Address): Promise<Error | undefined> {
  const server = createNetServer()
  try {
    await bind(server, address)
    return undefined
  } catch (error) {
    return error as Error
  } finally {
    server.close()
  }
}

async function bind(server: NetServer, { host, port, isShared = false }: Address): Promise<void> {
  server.listen({ port, host, reusePort: isShared, backlog: notAcceptedMax })
  try {
    await once(server, 'listening')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'EADDRINUSE') throw new PortInUseError(host, port)
    if (code === 'EACCES') throw new PortForbiddenError(host, port)
    if (code === 'ENOTFOUND' || code === 'EADDRNOTAVAIL') throw new NotOurAddressError(host)
    throw error
  }
}

/** The address people use. */
export async function listen(server: Server, config: Config): Promise<string> {
  await bind(server, { ...config, isShared: config.webProcesses > 1 })
  return config.publicUrl ?? `http://localhost:${(server.address() as AddressInfo).port}`
}

export type DrainOptions = {
  /** How long requests under way may take to finish. */
  readonly drainMs: number
  /** Aborted when the operator does not want to wait that long. */
  readonly hurry: AbortSignal
}

/**
 * Goes on serving, and asks every client to close its connection. Meanwhile load balancers see that `/readyz` fails and send new
 * requests elsewhere. Without this, a request that is sent while the port closes is lost.
 */
export async function serveUntilNoticed(server: Server, delayMs: number, hurry: AbortSignal): Promise<void> {
  server.prependListener('request', (_incoming, outgoing) => outgoing.setHeader('connection', 'close'))
  await sleep(delayMs, undefined, { signal: hurry }).catch(() => {})
}

/** Stops accepting, lets requests finish for a while, then fails the rest, tells their clients so, and hangs up. */
export async function drain(server: Server, load: Load, { drainMs, hurry }: DrainOptions): Promise<void> {
  // After a poll of the event loop, which accepts every connection that waits: the kernel resets those that nobody accepted.
  await eventLoopTurn()
  // Not the HTTP server's own `close`, which also resets idle connections whose next request has arrived and was not read yet.
  NetServer.prototype.close.call(server)
  const timeout = sleep(drainMs, undefined, { ref: false, signal: hurry }).catch(() => {})
  await Promise.race([finished(server, load), timeout])
  load.stop()
  await Promise.race([load.idle(), sleep(lastWordsMsMax, undefined, { ref: false })])
  server.closeAllConnections()
  await load.idle()
}

/** Resolves when nothing is being served, and no connection is left on which a request may still arrive. */
async function finished(server: Server, load: Load): Promise<void> {
  for (;;) {
    await load.idle()
    const idleMs = performance.now()
    while (load.isIdle && performance.now() - idleMs < lateRequestMsMax) {
      await eventLoopTurn()
      server.closeIdleConnections()
      if ((await connectionsOf(server)) === 0) return
      await sleep(connectionsPollMs)
    }
    if (load.isIdle) return
  }
}

/** Resolves when everything that had arrived before the call has been read. */
async function eventLoopTurn(): Promise<void> {
  // The first may come in the middle of a turn.
  await nextTurn()
  await nextTurn()
}

function connectionsOf(server: Server): Promise<number> {
  return new Promise((resolve, reject) =>
    server.getConnections((error, count) => (error === null ? resolve(count) : reject(error))),
  )
}

class NotOurAddressError extends OperatorError {
  constructor(host: string) {
    super(
      `HOST is ${host}, which is not an address of this machine. Use one of its addresses, or 0.0.0.0 for all of them.`,
    )
  }
}

class PortForbiddenError extends OperatorError {
  constructor(host: string, port: number) {
    super(`This user may not listen on port ${port} of ${host}. Choose a port above 1023 with PORT.`)
  }
}

class PortInUseError extends OperatorError {
  constructor(host: string, port: number) {
    super(`Port ${port} of ${host} is in use. Stop what uses it, or choose another with PORT.`)
  }
}
