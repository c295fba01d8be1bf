import { mkdir } from 'node:fs/promises'
import type { NetConnectOpts } from 'node:net'
import { join } from 'node:path'
import type { Address } from './load.ts'
import { type Exit, isRunning, type NodeProcess, type NodeSettings, startNode } from './node-process.ts'
import type { Random } from './random.ts'
import { TcpProxy } from './tcp-proxy.ts'

export type SlotOptions = {
  readonly random: Random
  /** Contains the data folders of its processes. */
  readonly folder: string
  readonly postgres: NetConnectOpts
  readonly databaseName: string
  /** Resolves once the database answers. */
  readonly untilConnected: () => Promise<unknown>
  readonly settings: Omit<NodeSettings, 'dataDir' | 'databaseUrl' | 'failpoint'>
}

/** PostgreSQL is killed less often than this in a round. Not a time: on a busy machine a start takes more than a minute. */
const startsMax = 30

/** Runs one process of the service after another, between a proxy for its clients and a proxy for its database. */
export class Slot {
  readonly random: Random
  readonly front: TcpProxy
  readonly back: TcpProxy
  /** The current process. */
  node: NodeProcess | undefined
  /** Since when the current process runs and clients are sent here; undefined without one, and while it is paused. */
  upSinceMs: number | undefined
  readonly #options: SlotOptions
  #folders = 0
  #closed: Promise<unknown> | undefined

  static async open(options: SlotOptions): Promise<Slot> {
    const back = await TcpProxy.open(() => options.postgres)
    const front = await TcpProxy.open(() => ({ host: '127.0.0.1', port: slot.node?.port ?? 1 }))
    const slot: Slot = new Slot(options, front, back)
    return slot
  }

  private constructor(options: SlotOptions, front: TcpProxy, back: TcpProxy) {
    this.random = options.random
    this.#options = options
    this.front = front
    this.back = back
  }

  async start(): Promise<NodeProcess> {
    const node = await this.launch(undefined)
    if (isRunning(node)) return node
    throw new Error(`a node does not start: ${node.complaint}`)
  }

  /** Retries until the process runs: the database may have been down. A process that died at its failpoint also counts as started. */
  async launch(failpoint: NodeSettings['failpoint']): Promise<NodeProcess | Exit> {
    for (let starts = 1; ; starts += 1) {
      const node = await startNode(await this.#settings(failpoint))
      if (isRunning(node)) {
        this.node = node
        this.upSinceMs = Date.now()
      }
      if (this.#closed !== undefined) {
        if (isRunning(node)) node.signal('SIGKILL')
        throw new Error('the round is over')
      }
      if (isRunning(node) || node.signal === 'SIGKILL' || starts >= startsMax) return node
      await this.#options.untilConnected()
    }
  }

  /** Only a process that exits cleanly writes the compile cache for the next ones, and few of them will. */
  async warmUp(): Promise<void> {
    const node = await this.start()
    this.vacate()
    node.signal('SIGTERM')
    await node.exited
  }

  /** The process has ended, or is about to. */
  vacate(): void {
    this.upSinceMs = undefined
    this.node = undefined
  }

  address(random: Random): Address {
    const { port, id } = this.node!
    const proxied = random.chance(0.25)
    return { port: proxied ? this.front.port : port, node: id, proxied }
  }

  /** Permanently: no process is started here afterwards. */
  async close(): Promise<void> {
    this.#closed ??= Promise.all([this.front.close(), this.back.close()])
    await this.#closed
  }

  async #settings(failpoint: NodeSettings['failpoint']): Promise<NodeSettings> {
    const { settings, folder, databaseName } = this.#options
    // A process on its predecessor's folder ends that one's holds immediately. With another folder, other nodes must notice the lost lease.
    if (this.#folders === 0 || this.random.chance(0.5)) this.#folders += 1
    const dataDir = join(folder, String(this.#folders))
    await mkdir(dataDir, { recursive: true })
    const databaseUrl = `postgres://penny@127.0.0.1:${this.back.port}/${databaseName}?sslmode=disable`
    return { ...settings, dataDir, databaseUrl, failpoint }
  }
}
