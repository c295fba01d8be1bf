import { setTimeout as pause } from 'node:timers/promises'
import pg from 'pg'
import { ServiceError } from '../errors.ts'
import { clientClass, NoUsableServerError, type Servers, serversOf } from './servers.ts'

/** Runs statements: the pool, or one transaction. */
export interface Connection {
  /** Returns the rows. To count changed rows, use `returning`. */
  query<Row = Record<string, unknown>>(text: string, values?: readonly unknown[]): Promise<Row[]>
  /** A prepared statement: parsed and planned once per connection. Use a name for one text only. */
  queryPrepared<Row = Record<string, unknown>>(name: string, text: string, values: readonly unknown[]): Promise<Row[]>
  /** Several statements in one text, without values and rows. For migrations. */
  execute(script: string): Promise<void>
}

export interface Database extends Connection {
  /**
   * Commits when `work` resolves, rolls back when it rejects. After an error for which `isConnectionLost` is true, the outcome is
   * unknown: read before you act.
   */
  transaction<Result>(work: (connection: Connection) => Promise<Result>, options?: TransactionOptions): Promise<Result>
  /** Waits up to `closeMaxMs` for statements in progress. */
  close(): Promise<void>
}

export type DatabaseOptions = {
  /** May name several servers: see `Servers`. */
  readonly url: string
  readonly poolMax: number
  readonly applicationName: string
  /** Statement timeout, enforced by the server. */
  readonly statementMaxMs?: number
  /** Timeout for a free or new connection. */
  readonly connectMaxMs?: number
  /** Calls that may wait for a connection; more are refused immediately. */
  readonly waitingMax?: number
  /** How long `close` waits for statements in progress before it cuts them off. */
  readonly closeMaxMs?: number
}

export type TransactionOptions = {
  readonly isolation?: 'read committed' | 'repeatable read' | 'serializable'
  readonly readOnly?: boolean
  /** Statement timeout of this transaction, instead of the pool's. */
  readonly statementMaxMs?: number
}

// We wait longer than the server's timeout: its own error proves that nothing was written.
const replyGraceMs = 2_000
const idleInTransactionMaxMs = 60_000
// Longer than the pauses between jobs: a new connection costs a server process and all prepared statements.
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
  /** `close` has timed out: connections that are established from now on must not be used. */
  #isCut = false

  constructor(options: DatabaseOptions) {
    const { statementMaxMs = 10_000, connectMaxMs = 5_000 } = options
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
    // An idle connection broke. The pool replaces it when needed.
    this.#pool.on('error', ignore)
    // A broken connection fails its statement. Without a listener its 'error' event would also end the process.
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

  /** Runs `work` on a connection. A connection in an unknown state is discarded afterwards. */
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
        // All connections are in use, or the pool is closed: this is not a failure of the server.
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
 * By default PostgreSQL compiles (JIT) our statements over large arrays, which makes them up to 12 times slower. A statement instead of a
 * startup option, because an `options` parameter in the URL would replace ours. A server that refuses it still works, only slower;
 * `penny doctor` reports it.
 */
async function turnJitOff(client: pg.ClientBase, replyMaxMs: number): Promise<void> {
  try {
    await client.query({ text: 'set jit = off', query_timeout: replyMaxMs } as pg.QueryConfig)
  } catch (error) {
    if (!(error instanceof pg.DatabaseError) || isConnectionLost(error)) throw error
  }
}

class LentConnection implements Connection {
  /** The connection must not be used again. */
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
      // `query_timeout` is enforced by the client: it works even when the server does not answer.
      const query = { ...statement, query_timeout: this.#replyMaxMs }
      return await this.#client.query<pg.QueryResultRow>(query)
    } catch (error) {
      // After an ordinary SQL error the connection is usable. After any other error its state is unknown.
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
  // The server answers the commit of a failed transaction with ROLLBACK, and `pg` does not throw. A statement failed, its error was
  // swallowed inside the transaction, and nothing was written.
  if (command !== 'COMMIT') throw new Error('The transaction was rolled back: a statement in it had failed.')
  return result
}

function beginning({ isolation, readOnly, statementMaxMs }: TransactionOptions): string {
  const level = isolation === undefined ? '' : ` isolation level ${isolation}`
  const access = readOnly ? ' read only' : ''
  const limit = statementMaxMs === undefined ? '' : `; set local statement_timeout = ${statementMaxMs}`
  return `begin${level}${access}${limit}`
}

/** Never throws: the first error counts, and an open transaction ends with its connection. */
async function rollBack(connection: LentConnection): Promise<void> {
  if (connection.isDoubtful) return
  await connection.execute('rollback').catch(() => {
    connection.isDoubtful = true
  })
}

/** The message of `pg`. */
const lostWhileClosing = 'Connection terminated'
const noFreeConnection = 'timeout exceeded when trying to connect'
// Messages of `pg` errors without a code: the connection, or the wait for one, was lost.
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
// Errors after which the server disconnects, "too many connections", and "read-only": after a failover the next connection may reach
// the server that accepts writes.
const lostStates = /^(08|57P|25006|25P03|25P04|53300)/
// Problems of the server itself (memory, disk, a bug). The outcome is unknown only if the connection ended as well.
const troubleStates = /^(53|58|XX)/

/** The statement timed out waiting for a lock. Nothing was written. */
export function isLockTimeout(error: unknown): boolean {
  return (error as { code?: unknown } | null)?.code === '55P03'
}

/** The statement ran for longer than its limit. Nothing was written. */
export function isStatementTimeout(error: unknown): boolean {
  return (error as { code?: unknown } | null)?.code === '57014'
}

/**
 * Whether the outcome of a statement is unknown: it may have been executed, or never sent. Read by id on a new connection before you
 * act. False for an ordinary SQL error: nothing was written.
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
  // ENOENT means a lost connection only for the socket.
  const isMissingSocket = syscall === 'connect' && (code === 'ENOENT' || code === 'EAGAIN')
  return isMissingSocket || lostSystemCodes.includes(code ?? '') || lostMessages.includes(error.message)
}

// Deadlock, serialization failure, full disk or memory, lock timeout, interruption by an operator or a failing server.
const transientStates = /^(40|53|55|57|58)/

/**
 * Whether the same statement can succeed later. True for every error for which `isConnectionLost` is true.
 */
export function isTransient(error: unknown): boolean {
  if (isConnectionLost(error) || error instanceof DatabaseOverloadedError) return true
  return error instanceof pg.DatabaseError && transientStates.test(error.code ?? '')
}

type Parser = (text: string) => unknown

const textOf: Parser = (text) => text
const anyTextArrayOf = pg.types.getTypeParser(1009 as Parameters<typeof pg.types.getTypeParser>[0]) as Parser // text[]
/** The parser of `pg` goes through every character: the addresses of a thousand keys would block the event loop. */
const textArrayOf: Parser = (text) => (/["\\{]/.test(text.slice(1)) ? anyTextArrayOf(text) : plainItemsOf(text))
const int8ArrayOf: Parser = (text) => plainItemsOf(text).map((item) => (item === null ? null : BigInt(item)))

/** The items of an array without quotes. */
function plainItemsOf(text: string): (string | null)[] {
  if (text === '{}') return []
  const items = text.slice(1, -1).split(',')
  return items.map((item) => (item === 'NULL' ? null : item))
}

/** Set per pool: the parsers of `pg` are global, and another module could replace them. Money must not depend on that. */
const parsers: ReadonlyMap<number, Parser> = new Map([
  [20, BigInt], // int8
  [1016, int8ArrayOf], // int8[]
  [1009, textArrayOf], // text[]
  // Never a float. A sum of int8 is numeric: cast it to bigint in the statement.
  [1700, textOf], // numeric
  [1231, textArrayOf], // numeric[]
  // As a `Date` these would depend on the time zone of this machine.
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
  constructor(waiting: number, waitingMax: number) {
    super(
      'overloaded',
      `The service is busy: ${waiting} calls are waiting for the database; the limit is ${waitingMax}. Try again in a second.`,
      {
        retryAfterMs: 1_000,
      },
    )
  }
}
