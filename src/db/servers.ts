import pg from 'pg'
import { changeParameter, type DatabaseServer, readDatabaseServers } from '../config/database-url.ts'
import { reasonOf } from '../errors.ts'

type Config = Omit<pg.ClientConfig, 'connectionString'>

/**
 * The servers of one database, of which one accepts writes at a time. New connections go to the server that last accepted one or, if that
 * fails or has become read-only, to the next in the order of the URL.
 */
export class Servers {
  readonly #servers: readonly DatabaseServer[]
  readonly #problems = new Map<DatabaseServer, string>()
  #current = 0

  constructor(servers: readonly DatabaseServer[]) {
    this.#servers = servers
  }

  get count(): number {
    return this.#servers.length
  }

  get current(): DatabaseServer {
    return this.#servers[this.#current]!
  }

  /** Several connections may fail on the same server: only the first moves on. */
  failed(server: DatabaseServer, error: unknown): void {
    this.#problems.set(server, reasonOf(error))
    if (server === this.current) this.#current = (this.#current + 1) % this.#servers.length
  }

  get error(): NoUsableServerError {
    return new NoUsableServerError(
      this.#servers.map((server) => `${server.name}: ${this.#problems.get(server) ?? 'not tried'}`),
    )
  }
}

/** Undefined when the URL has one server, which may be read-only. */
export function serversOf(url: string): Servers | undefined {
  const { servers, mustWrite } = readDatabaseServers(url)
  return mustWrite ? new Servers(servers) : undefined
}

/** For the pool, which calls `connect` with a callback. */
export function clientClass(servers: Servers): new () => pg.Client {
  return class extends pg.Client {
    constructor(config: Config = {}) {
      const server = servers.current
      super({ ...config, connectionString: server.url })
      const connect = this.connect.bind(this) as () => Promise<pg.Client>
      const connectToWrite = async (callback: (error: Error | null) => void) => {
        try {
          await connect()
          await refuseReadOnly(this)
        } catch (error) {
          servers.failed(server, error)
          // The pool forgets a client that did not connect.
          void this.end().catch(() => {})
          return callback(error as Error)
        }
        callback(null)
      }
      this.connect = connectToWrite as unknown as pg.Client['connect']
    }
  }
}

/** Connects to the database or, if the URL has several servers, to the first that accepts writes. */
export async function connectClient(url: string, config: Config): Promise<pg.Client> {
  const { servers, mustWrite } = readDatabaseServers(url)
  const tried = new Servers(servers)
  for (const server of servers) {
    const client = new pg.Client({ ...config, connectionString: server.url })
    client.on('error', () => {})
    try {
      await client.connect()
      if (mustWrite) await refuseReadOnly(client)
      return client
    } catch (error) {
      void client.end().catch(() => {})
      if (!mustWrite) throw error
      tried.failed(server, error)
    }
  }
  throw tried.error
}

/** The same database, with one more option for each connection. */
export function withOption(url: string, option: string): string {
  return changeParameter(url, 'options', (options) => (options === null ? option : `${options} ${option}`))
}

async function refuseReadOnly(client: pg.ClientBase): Promise<void> {
  const { rows } = await client.query<{ standby: boolean; readonly: boolean }>({
    text: `select pg_is_in_recovery() as standby, current_setting('transaction_read_only')::boolean as readonly`,
    query_timeout: replyMsMax,
  } as pg.QueryConfig)
  const { standby, readonly } = rows[0]!
  if (standby) throw new Error('it is a standby')
  if (readonly) throw new Error('it is read-only')
}

const replyMsMax = 5_000

/** Nothing was sent. Transient: a standby may be promoted at any moment. */
export class NoUsableServerError extends Error {
  constructor(problems: readonly string[]) {
    super(`no server accepts writes: ${problems.join('; ')}`)
    this.name = 'NoUsableServerError'
  }
}
