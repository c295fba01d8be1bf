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
  // How often both are compared. With Node's 30 s, headers that are 10 s late would be refused after up to 40 s.
  connectionsCheckingInterval: 1_000,
  // Longer than the idle timeout of common load balancers, so that they close idle connections first.
  keepAliveTimeout: 75_000,
  maxHeaderSize: 16_384,
  // Node would refuse without a message; we send one.
  requireHostHeader: false,
}

/** Timeouts for the headers and for the whole request. */
export const arrivalMsMax = { headers: serverOptions.headersTimeout, whole: serverOptions.requestTimeout }

/** The minimum: keep-alive connections are mostly idle. */
const connectionsMin = 1_000

/**
 * Connections that the kernel has opened and we have not accepted. With Node's 511, a burst of clients is reset while the event loop is
 * busy: 277 of 5,000 in ten seconds.
 */
const notAcceptedMax = 4_096

// Time to end stopped requests in the ledger and to send their clients an error, also on a loaded machine.
const lastAnswersMsMax = 5_000
// The request of a connection that was just accepted may not have arrived yet.
const lateRequestMsMax = 1_000
const connectionsPollMs = 20

/** Twice the requests in progress: as many connections again may be idle or sending a request. */
export function connectionsMaxFor(requestsMax: number): number {
  return Math.max(2 * requestsMax, connectionsMin)
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
 * Explains why the port cannot be used; undefined when it can. For an early check before the slow part of a start. The port is released
 * again: as long as it is closed, load balancers use other nodes.
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
    if (code === 'EADDRINUSE')
      throw new OperatorError(`Port ${port} of ${host} is in use. Stop what uses it, or choose another with PORT.`)
    if (code === 'EACCES')
      throw new OperatorError(
        `This user may not listen on port ${port} of ${host}. Choose a port above 1023 with PORT.`,
      )
    if (code === 'ENOTFOUND' || code === 'EADDRNOTAVAIL')
      throw new OperatorError(
        `HOST is ${host}, which is not an address of this machine. Use one of its addresses, or 0.0.0.0 for all of them.`,
      )
    throw error
  }
}

/** Returns the URL for people. */
export async function listen(server: Server, config: Config): Promise<string> {
  await bind(server, { ...config, isShared: config.webProcesses > 1 })
  return config.publicUrl ?? `http://localhost:${(server.address() as AddressInfo).port}`
}

export type DrainOptions = {
  /** How long requests in progress may take to finish. */
  readonly drainMs: number
  /** Aborts the wait, for example after a second Ctrl-C. */
  readonly hurry: AbortSignal
}

/**
 * Continues to serve, but asks every client to close its connection. In this time load balancers notice that `/readyz` fails and use
 * other nodes. Without this, requests sent while the port closes are lost.
 */
export async function serveUntilNoticed(server: Server, delayMs: number, hurry: AbortSignal): Promise<void> {
  server.prependListener('request', (_incoming, outgoing) => outgoing.setHeader('connection', 'close'))
  await sleep(delayMs, undefined, { signal: hurry }).catch(() => {})
}

/** Stops accepting, waits for requests in progress, then ends the rest with an error and closes all connections. */
export async function drain(server: Server, load: Load, { drainMs, hurry }: DrainOptions): Promise<void> {
  // First let the event loop accept all waiting connections: the kernel resets connections in the backlog.
  await eventLoopTurn()
  // Not the HTTP server's `close`: it also closes idle connections whose next request has arrived but was not read yet.
  NetServer.prototype.close.call(server)
  const timeout = sleep(drainMs, undefined, { ref: false, signal: hurry }).catch(() => {})
  await Promise.race([finished(server, load), timeout])
  load.stop()
  await Promise.race([load.idle(), sleep(lastAnswersMsMax, undefined, { ref: false })])
  server.closeAllConnections()
  await load.idle()
}

/** Resolves when no request is in progress and no connection is left that could send one. */
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

/** Resolves when everything that arrived before the call has been read. */
async function eventLoopTurn(): Promise<void> {
  // Two turns: the first may already be half over.
  await nextTurn()
  await nextTurn()
}

function connectionsOf(server: Server): Promise<number> {
  return new Promise((resolve, reject) =>
    server.getConnections((error, count) => (error === null ? resolve(count) : reject(error))),
  )
}
