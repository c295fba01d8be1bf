import { execFile } from 'node:child_process'
import { rmSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import type { NetConnectOpts } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { type Database, isConnectionLost, openDatabase } from '../../src/db/database.ts'
import { send } from '../../src/db/embedded/postmaster.ts'
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/db/embedded-postgres.ts'
import { migrate } from '../../src/db/migrate.ts'

const migrations = fileURLToPath(new URL('../../migrations', import.meta.url))
/** Time for crash recovery on a busy disk. */
const awayMsMax = 180_000
const pollMs = 10

/** What faults are injected into: one PostgreSQL, or a cluster. It always comes back. */
export type FaultyDatabase = {
  /** A folder for files of the run. */
  readonly folder: string
  readonly address: NetConnectOpts
  /** Partitions of the ledger. */
  readonly partitions: number
  /** Creates an empty, migrated database. */
  createDatabase(name: string): Promise<Database>
  dropDatabase(name: string): Promise<void>
  urlOf(name: string): string
  /** `kill -9` of a server and all its processes. */
  kill(): Promise<void>
  /** A fast shutdown and a start, as in an operator's restart. */
  restart(): Promise<void>
  /** Suspends all of it. */
  pause(ms: number): Promise<void>
  stop(): Promise<void>
}

/** One PostgreSQL. Our launcher starts it again. */
export class PostgresServer implements FaultyDatabase {
  readonly partitions = 1
  readonly #postgres: EmbeddedPostgres
  readonly #folder: string

  /** Uses a new folder, or the given one. Deletes it at the end. */
  static async start(given?: string): Promise<PostgresServer> {
    const folder = given ?? (await mkdtemp(join(tmpdir(), 'penny-faults-')))
    const onLost = (error: unknown) => console.error('PostgreSQL was not brought back:', error)
    return new PostgresServer(await startEmbeddedPostgres({ dataDir: folder, onLost }), folder)
  }

  private constructor(postgres: EmbeddedPostgres, folder: string) {
    this.#postgres = postgres
    this.#folder = folder
    // It has its own session, so it would outlive an aborted run.
    process.once('exit', this.#abandon)
  }

  get folder(): string {
    return this.#folder
  }

  get address(): NetConnectOpts {
    return { path: join(new URL(this.#postgres.url).searchParams.get('host')!, '.s.PGSQL.5432') }
  }

  async createDatabase(name: string): Promise<Database> {
    await this.#administer(`create database ${name}`)
    const database = this.open(name, 4)
    await migrate(database, migrations)
    return database
  }

  async dropDatabase(name: string): Promise<void> {
    await this.#administer(`drop database ${name} with (force)`)
  }

  urlOf(name: string): string {
    const url = new URL(this.#postgres.url)
    url.pathname = `/${name}`
    return url.href
  }

  open(name: string, poolMax: number): Database {
    return openDatabase({ url: this.urlOf(name), poolMax, applicationName: 'faults' })
  }

  async kill(): Promise<void> {
    const { pid } = this.#postgres
    // A stopped server starts no more children. A missed child would wait forever for locks of the others.
    send(pid, 'SIGSTOP')
    const children = await childrenOf(pid)
    for (const victim of [pid, ...children]) send(victim, 'SIGKILL')
  }

  async restart(): Promise<void> {
    send(this.#postgres.pid, 'SIGINT')
  }

  pause(ms: number): Promise<void> {
    return suspend([this.#postgres.pid], ms)
  }

  async stop(): Promise<void> {
    process.off('exit', this.#abandon)
    await this.#postgres.stop()
    await rm(this.#folder, { recursive: true, force: true, maxRetries: 10 })
  }

  readonly #abandon = (): void => {
    send(this.#postgres.pid, 'SIGQUIT')
    rmSync(this.#folder, { recursive: true, force: true })
  }

  async #administer(statement: string): Promise<void> {
    const database = this.open('postgres', 1)
    try {
      await database.execute(statement)
    } finally {
      await database.close()
    }
  }
}

/** Retries until the database answers. Only for work that may run twice. */
export async function retryUntilConnected<Result>(work: () => Promise<Result>): Promise<Result> {
  const deadline = Date.now() + awayMsMax
  for (;;) {
    try {
      return await work()
    } catch (error) {
      if (!isConnectionLost(error) || Date.now() > deadline) throw error
      await sleep(pollMs)
    }
  }
}

/** Suspends servers and all their processes. */
export async function suspend(servers: readonly number[], ms: number): Promise<void> {
  const children = await Promise.all(servers.map(childrenOf))
  const all = [...servers, ...children.flat()]
  for (const one of all) send(one, 'SIGSTOP')
  await sleep(ms)
  for (const one of all) send(one, 'SIGCONT')
}

export async function childrenOf(pid: number): Promise<readonly number[]> {
  const { stdout } = await promisify(execFile)('pgrep', ['-P', String(pid)]).catch(() => ({ stdout: '' }))
  return stdout.split('\n').filter(Boolean).map(Number)
}
