import { setTimeout as pause } from 'node:timers/promises'
import pg from 'pg'
import { ServiceError } from '../errors.ts'
import { clientClass, NoUsableServerError, type Servers, serversOf } from './servers.ts'

/** What can run statements: the pool, or one transaction on one of its connections. */
export interface Connection {
  /** The rows. A statement that should tell how many it changed does so with `returning`. */
  query<Row = Record<string, unknown>>(text: string, values?: readonly unknown[]): Promise<Row[]>
  /** Parsed and planned once per connection. A name stands for one text for ever. */
  queryPrepared<Row = Record<string, unknown>>(name: string, text: string, values: readonly unknown[]): Promise<Row[]>
  /** Several statements in one text, without values and without rows: a migration. */
  execute(script: string): Promise<void>
}

export interface Database extends Connection {
  /**
   * Commits when `work` resolves, rolls back when it rejects. When it rejects with an error for which
   * `isConnectionLost` holds, the transaction may have been committed or not: read before acting.
   */
  transaction<Result>(work: (connection: Connection) => Promise<Result>, options?: TransactionOptions): Promise<Result>
  /** Waits a while for what is under way. */
  close(): Promise<void>
}

export type DatabaseOptions = {
  /** May name several servers: see `Servers`. */
  readonly url: string
  /** Connections at most. */
  readonly poolMax: number
  readonly applicationName: string
  /** The server gives a statement up after this. */
  readonly statementMaxMs?: number
  /** To wait for a free connection, or for a new one to be made. */
  readonly connectMaxMs?: number
  /** Calls that may wait for a connection; more are refused at once. */
  readonly waitingMax?: number
  /** What is under way when the database is closed may take this long to end; then it is cut. */
  readonly closeMaxMs?: number
  /** An idle connection broke. It is replaced when needed; this is for the log. */
  readonly onIdleError?: (error: Error) => void
}

export type TransactionOptions = {
  readonly isolation?: 'read committed' | 'repeatable read' | 'serializable'
  readonly readOnly?: boolean
  /** For each statement of this transaction, in place of the pool's. */
  readonly statementMaxMs?: number
}

// We wait a little longer than the server does: its own answer says for certain that nothing was written.
const replyGraceMs = 2_000
const idleInTransactionMaxMs = 60_000
// A new connection costs PostgreSQL a process and us all prepared statements: it outlives the pauses between jobs.
const idleConnectionMs = 60_000

export function openDatabase(options: DatabaseOptions): Database {
  return new PooledDatabase(options)
}

class PooledDatabase implements Database {
  readonly #pool: pg.Pool
  readonly #servers: Servers | undefined
  readonly #busy = new Set<pg.PoolClient>()
  readonly #waitingMax: number
  readonly #replyMaxMs: number
  readonly #closeMaxMs: number
  #closing: Promise<void> | undefined
  /** What was under way has had its time: a connection that is made only now begins nothing. */
  #isCut = false

  constructor(options: DatabaseOptions) {
    const { statementMaxMs = 10_000, connectMaxMs = 5_000, onIdleError = ignore } = options
    this.#waitingMax = options.waitingMax ?? 1_000
    this.#closeMaxMs = options.closeMaxMs ?? 10_000
    this.#replyMaxMs = statementMaxMs + replyGraceMs
    this.#servers = serversOf(options.url)
    this.#pool = new pg.Pool({
      ...(this.#servers ? { Client: clientClass(this.#servers) } : { connectionString: options.url }),
      max: options.poolMax,
      application_name: options.applicationName,
      connectionTimeoutMillis: connectMaxMs,
      idleTimeoutMillis: idleConnectionMs,
      statement_timeout: statementMaxMs,
      idle_in_transaction_session_timeout: idleInTransactionMaxMs,
      types: { getTypeParser },
      onConnect: (client) => turnJitOff(client, connectMaxMs),
    })
    this.#pool.on('error', onIdleError)
    // A connection that breaks while in use fails its statement. Its 'error' event, unheard, would end the process.
    this.#pool.on('connect', (client) => client.on('error', ignore))
  }

  query<Row>(text: string, values: readonly unknown[] = []): Promise<Row[]> {
    return this.#lend((connection) => connection.query<Row>(text, values))
  }

  queryPrepared<Row>(name: string, text: string, values: readonly unknown[]): Promise<Row[]> {
    return this.#lend((connection) => connection.queryPrepared<Row>(name, text, values))
  }

  execute(script: string): Promise<void> {
    return this.#lend((connection) => connection.execute(script))
  }

  transaction<Result>(
    work: (connection: Connection) => Promise<Result>,
    options: TransactionOptions = {},
  ): Promise<Result> {
    return this.#lend((connection) => runTransaction(connection, work, options), options.statementMaxMs)
  }

  close(): Promise<void> {
    this.#closing ??= this.#end()
    return this.#closing
  }

  /** Lends a connection to one piece of work. One of whose state we cannot be sure is not used again. */
  async #lend<Result>(work: (connection: LentConnection) => Promise<Result>, statementMaxMs?: number): Promise<Result> {
    const { waitingCount } = this.#pool
    if (waitingCount >= this.#waitingMax) throw new DatabaseOverloadedError(waitingCount, this.#waitingMax)
    const client = await this.#connect()
    if (this.#isCut) {
      client.release(true)
      throw new Error(lostWhileClosing)
    }
    this.#busy.add(client)
    const replyMaxMs = statementMaxMs === undefined ? this.#replyMaxMs : statementMaxMs + replyGraceMs
    const connection = new LentConnection(client, replyMaxMs)
    try {
      return await work(connection)
    } finally {
      this.#busy.delete(client)
      client.release(connection.isDoubtful)
    }
  }

  /** Tries each server once. */
  async #connect(): Promise<pg.PoolClient> {
    const servers = this.#servers
    if (servers === undefined) return this.#pool.connect()
    for (let tries = 0; tries < servers.count; tries += 1) {
      try {
        return await this.#pool.connect()
      } catch (error) {
        // All connections are in use, or the pool is closed: no server was asked.
        if (this.#closing !== undefined || (error as Error).message === noFreeConnection) throw error
      }
    }
    throw servers.error
  }

  async #end(): Promise<void> {
    const patience = new AbortController()
    const late = pause(this.#closeMaxMs, undefined, { signal: patience.signal }).catch(ignore)
    await Promise.race([this.#pool.end(), late])
    patience.abort()
    this.#isCut = true
    for (const client of this.#busy) void client.end()
  }
}

/**
 * PostgreSQL compiles our array-sized statements by default, which takes longer than running them: up to 12 times slower.
 * A statement instead of a startup option, because an `options` parameter in the URL would replace ours. A server that
 * refuses it serves all the same, only slower: `penny doctor` reports it.
 */
async function turnJitOff(client: pg.ClientBase, replyMaxMs: number): Promise<void> {
  try {
    await client.query({ text: 'set jit = off', query_timeout: replyMaxMs } as pg.QueryConfig)
  } catch (error) {
    if (!(error instanceof pg.DatabaseError) || isConnectionLost(error)) throw error
  }
}

/** One connection while it is lent. */
class LentConnection implements Connection {
  /** Whether the connection must be thrown away. */
  isDoubtful = false
  readonly #client: pg.PoolClient
  readonly #replyMaxMs: number

  constructor(client: pg.PoolClient, replyMaxMs: number) {
    this.#client = client
    this.#replyMaxMs = replyMaxMs
  }

  query<Row>(text: string, values: readonly unknown[] = []): Promise<Row[]> {
    return this.#rows({ text, values: [...values] })
  }

  queryPrepared<Row>(name: string, text: string, values: readonly unknown[]): Promise<Row[]> {
    return this.#rows({ name, text, values: [...values] })
  }

  async execute(script: string): Promise<void> {
    await this.send({ text: script })
  }

  async #rows<Row>(statement: Statement): Promise<Row[]> {
    const { rows } = await this.send(statement)
    return rows as Row[]
  }

  async send(statement: Statement): Promise<pg.QueryResult<pg.QueryResultRow>> {
    try {
      // `query_timeout` is the client's own clock: it runs also when the server has stopped answering.
      const query = { ...statement, query_timeout: this.#replyMaxMs }
      return await this.#client.query<pg.QueryResultRow>(query)
    } catch (error) {
      // A plain answer of the server leaves the connection as good as before; after all else its state is unknown.
      if (!(error instanceof pg.DatabaseError) || isConnectionLost(error)) this.isDoubtful = true
      throw error
    }
  }
}

type Statement = { name?: string; text: string; values?: unknown[] }

async function runTransaction<Result>(
  connection: LentConnection,
  work: (connection: Connection) => Promise<Result>,
  options: TransactionOptions,
): Promise<Result> {
  await connection.execute(beginning(options))
  let result: Result
  try {
    result = await work(connection)
  } catch (error) {
    await rollBack(connection)
    throw error
  }
  const { command } = await connection.send({ text: 'commit' })
  // The server answers a commit of a failed transaction with ROLLBACK, and `pg` resolves: nothing was written.
  if (command !== 'COMMIT') throw new TransactionRolledBackError()
  return result
}

function beginning({ isolation, readOnly, statementMaxMs }: TransactionOptions): string {
  const level = isolation === undefined ? '' : ` isolation level ${isolation}`
  const access = readOnly ? ' read only' : ''
  const limit = statementMaxMs === undefined ? '' : `; set local statement_timeout = ${statementMaxMs}`
  return `begin${level}${access}${limit}`
}

/** Never fails: what went wrong first is what counts, and an unfinished transaction dies with its connection. */
async function rollBack(connection: LentConnection): Promise<void> {
  if (connection.isDoubtful) return
  await connection.execute('rollback').catch(() => {
    connection.isDoubtful = true
  })
}

/** As `pg` says it. */
const lostWhileClosing = 'Connection terminated'
const noFreeConnection = 'timeout exceeded when trying to connect'
// What `pg` says, without a code, when the connection or the wait for it is gone.
const lostMessages: readonly string[] = [
  lostWhileClosing,
  'Connection terminated unexpectedly',
  'Connection terminated due to connection timeout',
  'Client has encountered a connection error and is not queryable',
  'Client was closed and is not queryable',
  'Query read timeout',
  noFreeConnection,
  'timeout expired',
]
const lostSystemCodes: readonly string[] = [
  'ECONNREFUSED',
  'ECONNRESET',
  'ECONNABORTED',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOTCONN',
  'ENOTFOUND',
  'EAI_AGAIN',
]
// Answers after which the server hangs up, the refusal of a full server to take a new connection, and that of a server that has
// become read-only: a connection to it is useless, and the next one may find the server that accepts writes.
const lostStates = /^(08|57P|25006|25P03|25P04|53300)/
// The server's own trouble (memory, disk, a bug): with such a state only an end of the connection leaves a doubt.
const troubleStates = /^(53|58|XX)/

/** A lock stayed taken for longer than the statement waits for it. Nothing was written. */
export function isLockTimeout(error: unknown): boolean {
  return (error as { code?: unknown } | null)?.code === '55P03'
}

/**
 * Whether the outcome of a statement is unknown: it may have been carried out or not, or was never sent. Then read by
 * id on a new connection before doing anything. False for an ordinary SQL error: nothing was written.
 */
export function isConnectionLost(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  if (error instanceof NoUsableServerError) return true
  if (error instanceof pg.DatabaseError) {
    const { code = '', severity } = error
    const isFatal = severity === 'FATAL' || severity === 'PANIC'
    return lostStates.test(code) || (isFatal && troubleStates.test(code))
  }
  const { code, syscall } = error as NodeJS.ErrnoException
  // A missing file is a lost connection only when it is the socket.
  const isMissingSocket = syscall === 'connect' && (code === 'ENOENT' || code === 'EAGAIN')
  return isMissingSocket || lostSystemCodes.includes(code ?? '') || lostMessages.includes(error.message)
}

// Deadlocks and serialization, a full disk or memory, locks, an operator's or a failing server's interruption.
const passingStates = /^(40|53|55|57|58)/

/**
 * Whether nothing is wrong with the statement itself: the same one will be carried out when the trouble is over. Holds also
 * for every error for which `isConnectionLost` does.
 */
export function isTransient(error: unknown): boolean {
  if (isConnectionLost(error) || error instanceof DatabaseOverloadedError) return true
  return error instanceof pg.DatabaseError && passingStates.test(error.code ?? '')
}

type Parser = (text: string) => unknown

const textOf: Parser = (text) => text
const textArrayOf = pg.types.getTypeParser(1009 as Parameters<typeof pg.types.getTypeParser>[0]) as Parser // text[]
const int8ArrayOf: Parser = (text) =>
  text === '{}'
    ? []
    : text
        .slice(1, -1)
        .split(',')
        .map((item) => (item === 'NULL' ? null : BigInt(item)))

/** Only for our own pools: the parsers of `pg` are global, and money must not depend on who set them last. */
const parsers: ReadonlyMap<number, Parser> = new Map([
  [20, BigInt], // int8
  [1016, int8ArrayOf], // int8[]
  // Never a float: a sum of int8 is numeric, cast it to bigint in the statement.
  [1700, textOf], // numeric
  [1231, textArrayOf], // numeric[]
  // A `Date` made of these would depend on the time zone of this machine.
  [1082, textOf], // date
  [1182, textArrayOf], // date[]
  [1114, textOf], // timestamp without time zone
  [1115, textArrayOf], // timestamp without time zone[]
])

const getTypeParser = ((oid: number, format: 'text' | 'binary' = 'text') =>
  (format === 'text' ? parsers.get(oid) : undefined) ??
  pg.types.getTypeParser(oid, format as 'text')) as typeof pg.types.getTypeParser

function ignore(): void {}

class DatabaseOverloadedError extends ServiceError {
  readonly code = 'overloaded'
  constructor(waiting: number, waitingMax: number) {
    super(
      `The service is busy: ${waiting} calls are waiting for the database; the limit is ${waitingMax}. Try again in a second.`,
      {
        retryAfterMs: 1_000,
      },
    )
  }
}

/** A statement of the transaction failed and its error was swallowed: nothing of it was written. */
class TransactionRolledBackError extends Error {
  constructor() {
    super('The transaction was rolled back: a statement in it had failed.')
    this.name = 'TransactionRolledBackError'
  }
}
