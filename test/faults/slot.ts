import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { Address } from './load.ts'
import { type Exit, isRunning, type NodeProcess, type NodeSettings, startNode } from './node-process.ts'
import type { Random } from './random.ts'
import { TcpProxy } from './tcp-proxy.ts'

export type SlotOptions = {
  readonly random: Random
  /** Its processes have their data folders in here. */
  readonly folder: string
  readonly postgresSocket: string
  readonly databaseName: string
  readonly settings: Omit<NodeSettings, 'dataDir' | 'databaseUrl' | 'failpoint'>
}

const startMsMax = 180_000

/** A place for one process of the service after another, between a proxy for its clients and one for its database. */
export class Slot {
  readonly random: Random
  readonly front: TcpProxy
  readonly back: TcpProxy
  /** The process that runs here now. */
  node: NodeProcess | undefined
  /** Whether clients are sent here. */
  takesRequests = false
  readonly #options: SlotOptions
  #folders = 0
  #closed: Promise<unknown> | undefined

  static async open(options: SlotOptions): Promise<Slot> {
    const back = await TcpProxy.open(() => ({ path: options.postgresSocket }))
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

  /** Starts until it runs: the database may be away just now. A process that dies at its failpoint has run. */
  async launch(failpoint: NodeSettings['failpoint']): Promise<NodeProcess | Exit> {
    const deadline = Date.now() + startMsMax
    for (;;) {
      const node = await startNode(await this.#settings(failpoint))
      if (isRunning(node)) {
        this.node = node
        this.takesRequests = true
      }
      if (this.#closed !== undefined) {
        if (isRunning(node)) node.signal('SIGKILL')
        throw new Error('the round is over')
      }
      if (isRunning(node) || node.signal === 'SIGKILL' || Date.now() > deadline) return node
    }
  }

  /** Only a process that ends in good order leaves its compiled code behind for the next, and few of them will. */
  async warmUp(): Promise<void> {
    const node = await this.start()
    this.vacate()
    node.signal('SIGTERM')
    await node.exited
  }

  /** The process is gone, or about to go. */
  vacate(): void {
    this.takesRequests = false
    this.node = undefined
  }

  address(random: Random): Address {
    const { port, id } = this.node!
    const proxied = random.chance(0.25)
    return { port: proxied ? this.front.port : port, node: id, proxied }
  }

  /** For good: no process is started here any more. */
  async close(): Promise<void> {
    this.#closed ??= Promise.all([this.front.close(), this.back.close()])
    await this.#closed
  }

  async #settings(failpoint: NodeSettings['failpoint']): Promise<NodeSettings> {
    const { settings, folder, databaseName } = this.#options
    // On the folder of its predecessor a process ends that one's holds at once; on another, somebody must notice the lease.
    if (this.#folders === 0 || this.random.chance(0.5)) this.#folders += 1
    const dataDir = join(folder, String(this.#folders))
    await mkdir(dataDir, { recursive: true })
    const databaseUrl = `postgres://penny@127.0.0.1:${this.back.port}/${databaseName}?sslmode=disable`
    return { ...settings, dataDir, databaseUrl, failpoint }
  }
}
