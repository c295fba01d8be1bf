import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chownSync, existsSync, mkdtempSync, openSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { freePort } from '../drills/free-port.ts'
import { childrenOf } from '../faults/postgres-server.ts'
import { until } from './until.ts'

const home = '/usr/lib/postgresql'
const versions = [18, 17, 16, 15]
const user = 'penny'
const replyMsMax = 60_000

/** The folder of a PostgreSQL that has Citus; undefined when this machine has none. */
export function findCitus(): string | undefined {
  return versions
    .map((version) => join(home, String(version)))
    .find((folder) => existsSync(join(folder, 'lib/citus.so')))
}

export const citusMissing = `Citus is not installed: no citus.so below ${home}/*/lib`

export type ClusterServer = { readonly port: number; readonly folder: string; process: ChildProcess | undefined }

/** A coordinator and its workers, all on this machine. */
export class CitusCluster implements AsyncDisposable {
  readonly coordinator: ClusterServer
  readonly workers: ClusterServer[] = []
  readonly #programs: string
  readonly #folder: string
  readonly #isDurable: boolean

  /** `isDurable`: commits reach the disk, as in production. */
  static async start(workers: number, { isDurable }: { readonly isDurable: boolean }): Promise<CitusCluster> {
    const citus = findCitus()
    if (citus === undefined) throw new Error(citusMissing)
    const folder = mkdtempSync(join(tmpdir(), 'penny-citus-'))
    if (asOther !== undefined) chownSync(folder, asOther.uid, asOther.gid)
    const server = async (name: string) => ({ port: await freePort(), folder: join(folder, name), process: undefined })
    const cluster = new CitusCluster(join(citus, 'bin'), folder, isDurable, await server('coordinator'))
    try {
      await cluster.#create(cluster.coordinator)
      for (let number = 1; number <= workers; number += 1) await cluster.startWorker()
    } catch (error) {
      await cluster[Symbol.asyncDispose]()
      throw error
    }
    return cluster
  }

  private constructor(programs: string, folder: string, isDurable: boolean, coordinator: ClusterServer) {
    this.#programs = programs
    this.#folder = folder
    this.#isDurable = isDurable
    this.coordinator = coordinator
  }

  get servers(): readonly ClusterServer[] {
    return [this.coordinator, ...this.workers]
  }

  /** One more worker, which no database knows yet. */
  async startWorker(): Promise<ClusterServer> {
    const folder = join(this.#folder, `worker-${this.workers.length + 1}`)
    const worker: ClusterServer = { port: await freePort(), folder, process: undefined }
    await this.#create(worker)
    this.workers.push(worker)
    return worker
  }

  /** A database of that name on every server, where the coordinator knows the workers. */
  async createDatabase(name: string): Promise<string> {
    await createOnAll(
      this.servers.map(({ port }) => serverUrl(port)),
      name,
    )
    return serverUrl(this.coordinator.port, name)
  }

  /** Makes the worker known to a database that was created before it. */
  async addWorker(worker: ClusterServer, name: string): Promise<void> {
    await onServer(serverUrl(worker.port), (client) => client.query(`create database ${name}`))
    await onServer(serverUrl(worker.port, name), (client) => client.query('create extension citus'))
    await onServer(serverUrl(this.coordinator.port, name), (client) =>
      client.query("select citus_add_node('127.0.0.1', $1)", [worker.port]),
    )
  }

  /** `kill -9` of the server and of all of its processes. */
  async kill(server: ClusterServer): Promise<void> {
    const { pid } = server.process!
    process.kill(pid!, 'SIGSTOP')
    const exited = once(server.process!, 'exit')
    for (const victim of [pid!, ...(await childrenOf(pid!))]) process.kill(victim, 'SIGKILL')
    await exited
    server.process = undefined
  }

  /** Starts a server that was killed. */
  async restart(server: ClusterServer): Promise<void> {
    const settings = {
      listen_addresses: '127.0.0.1',
      port: server.port,
      unix_socket_directories: '',
      shared_buffers: '96MB',
      max_connections: 300,
      max_worker_processes: 32,
      shared_preload_libraries: 'citus',
      max_prepared_transactions: 600,
      wal_level: 'logical',
      max_replication_slots: 40,
      max_wal_senders: 40,
      max_logical_replication_workers: 16,
      fsync: this.#isDurable ? 'on' : 'off',
      // Tests clone a template, and a clone does not have the settings of its database. Others rely on `distributeLedger`.
      ...(!this.#isDurable && { jit: 'off' }),
      'citus.node_conninfo': 'sslmode=prefer',
      'citus.enable_statistics_collection': 'off',
      // Commits of transactions over several servers that a crash interrupted are finished sooner than after a minute.
      'citus.recover_2pc_interval': '2s',
    }
    const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
    const log = openSync(`${server.folder}.log`, 'a')
    server.process = spawn(join(this.#programs, 'postgres'), ['-D', server.folder, ...flags], {
      ...asOther,
      cwd: '/',
      stdio: ['ignore', log, log],
    })
    const isUp = () =>
      onServer(serverUrl(server.port), (client) => client.query('select')).then(
        () => true,
        () => false,
      )
    await until(isUp)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const server of this.servers) {
      const child = server.process
      if (child === undefined || child.exitCode !== null || child.signalCode !== null) continue
      const exited = once(child, 'exit')
      if (child.kill('SIGQUIT')) await exited
    }
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 10 })
  }

  async #create(server: ClusterServer): Promise<void> {
    const options = ['-U', user, '--auth=trust', '--no-sync', '--no-instructions', '-E', 'UTF8', '--locale=C.UTF-8']
    execFileSync(join(this.#programs, 'initdb'), ['-D', server.folder, ...options], {
      ...asOther,
      cwd: '/',
      stdio: 'pipe',
      timeout: replyMsMax,
    })
    await this.restart(server)
  }
}

/** PostgreSQL refuses to run as root. */
const asOther = process.getuid?.() === 0 ? { uid: idOfNobody('-u'), gid: idOfNobody('-g') } : undefined

function idOfNobody(flag: '-u' | '-g'): number {
  return Number(execFileSync('id', [flag, 'nobody'], { encoding: 'utf8' }))
}

export function serverUrl(port: number, database = 'postgres'): string {
  return `postgresql://${user}@127.0.0.1:${port}/${database}`
}

/** The first server becomes the coordinator of the others. */
export async function createOnAll(servers: readonly string[], name: string): Promise<void> {
  await Promise.all(
    servers.map(async (server) => {
      await onServer(server, (client) => client.query(`create database ${name}`))
      await onServer(withDatabase(server, name), (client) => client.query('create extension citus'))
    }),
  )
  const [coordinator, ...workers] = servers
  await onServer(withDatabase(coordinator!, name), async (client) => {
    await client.query("select citus_set_coordinator_host('127.0.0.1', $1)", [portOf(coordinator!)])
    for (const worker of workers) await client.query("select citus_add_node('127.0.0.1', $1)", [portOf(worker)])
  })
}

function portOf(server: string): number {
  return Number(new URL(server).port)
}

export function withDatabase(server: string, name: string): string {
  const url = new URL(server)
  url.pathname = `/${name}`
  return url.href
}

export async function onServer<Result>(server: string, work: (client: pg.Client) => Promise<Result>): Promise<Result> {
  const client = new pg.Client({
    connectionString: server,
    connectionTimeoutMillis: replyMsMax,
    query_timeout: replyMsMax,
  })
  client.on('error', () => {})
  await client.connect()
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}
