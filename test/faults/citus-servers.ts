import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import type { NetConnectOpts } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { distributeLedger } from '../../src/db/citus.ts'
import { type Database, openDatabase } from '../../src/db/database.ts'
import { migrate } from '../../src/db/migrate.ts'
import { CitusCluster, type ClusterServer, onServer, serverUrl } from '../support/citus-cluster.ts'
import { type FaultyDatabase, suspend } from './postgres-server.ts'

const migrations = fileURLToPath(new URL('../../migrations', import.meta.url))
const workers = 2

/** A Citus cluster whose servers fail in turn: a worker, the coordinator, the other worker. */
export class CitusServers implements FaultyDatabase {
  readonly partitions = 8
  readonly folder: string
  readonly #cluster: CitusCluster
  #faults = 0

  static async start(): Promise<CitusServers> {
    const cluster = await CitusCluster.start(workers, { isDurable: true })
    return new CitusServers(cluster, await mkdtemp(join(tmpdir(), 'penny-faults-')))
  }

  private constructor(cluster: CitusCluster, folder: string) {
    this.#cluster = cluster
    this.folder = folder
  }

  get address(): NetConnectOpts {
    return { host: '127.0.0.1', port: this.#cluster.coordinator.port }
  }

  async createDatabase(name: string): Promise<Database> {
    const url = await this.#cluster.createDatabase(name)
    const database = openDatabase({ url, poolMax: 4, applicationName: 'faults' })
    await migrate(database, migrations)
    await distributeLedger(database, this.partitions)
    return database
  }

  async dropDatabase(name: string): Promise<void> {
    for (const { port } of this.#cluster.servers)
      await onServer(serverUrl(port), (client) => client.query(`drop database ${name} with (force)`))
  }

  urlOf(name: string): string {
    return serverUrl(this.#cluster.coordinator.port, name)
  }

  async kill(): Promise<void> {
    const server = this.#next()
    await this.#cluster.kill(server)
    await this.#cluster.restart(server)
  }

  async restart(): Promise<void> {
    const server = this.#next()
    const exited = once(server.process!, 'exit')
    server.process!.kill('SIGINT')
    await exited
    await this.#cluster.restart(server)
  }

  pause(ms: number): Promise<void> {
    return suspend(
      this.#cluster.servers.map(({ process }) => process!.pid!),
      ms,
    )
  }

  async stop(): Promise<void> {
    await this.#cluster[Symbol.asyncDispose]()
    await rm(this.folder, { recursive: true, force: true, maxRetries: 10 })
  }

  #next(): ClusterServer {
    const { coordinator, workers: all } = this.#cluster
    const turn = [all[0]!, coordinator, all[1]!]
    const server = turn[this.#faults % turn.length]!
    this.#faults += 1
    return server
  }
}
