import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Database } from '../../src/db/database.ts'
import { type Coverage, type Done, failpointState, faultName, postgresFaultName } from './coverage.ts'
import { findContradictions, findOpenHolds, findViolations, readRows } from './history.ts'
import { Load, openPurses } from './load.ts'
import { type ModelUpstream, startModelUpstream } from './model-upstream.ts'
import { type Exit, isRunning, type NodeProcess } from './node-process.ts'
import { makePlan, type NodeFault, type Plan, type PlanSize, type PostgresFault } from './plan.ts'
import { type PostgresServer, persistently } from './postgres-server.ts'
import { Random } from './random.ts'
import { Slot } from './slot.ts'
import { Deliverers, findLostEvents, openEndpoints, type Receiver, startReceiver } from './webhooks.ts'

export type RoundOptions = {
  readonly seed: number
  readonly size: PlanSize
  readonly nodes: number
  readonly clients: number
  readonly postgres: PostgresServer
  readonly coverage: Coverage
  /** Whether events are delivered, by processes that are killed too. */
  readonly deliversWebhooks: boolean
}

type Progress = { readonly kills: number; readonly postgresKills: number; readonly requests: number }

export type RoundResult = Progress & {
  /** Requests whose answers came whole. */
  readonly answered: number
  /** Messages of webhooks, repeated ones included. */
  readonly received: number
  /** The longest that a hold outlived its node. */
  readonly slowestEndMs: number
  readonly problems: readonly string[]
}

// Fast, because a run is thousands of short lives: what matters is how often a request is met in each state, not for how long.
const pace = { tokensMax: 50, tokenMs: 10, silenceMsMax: 120 }
// On an overloaded machine a shorter one of a living node runs out again and again, and a node whose own lease has run out ends nothing.
const leaseMs = 2_000
const checkpointMs = 60
const drainMs = 5_000
const exitMsMax = drainMs + 10_000
const endedMsMax = 60_000
const faultMsMax = 30_000
const momentMsMax = 10_000
const pollMs = 20
// A client sees the end of its connection before the runner hears of the end of the process.
const exitLagMs = 50
// One more piece of the model's may be on its way.
const checkpointTokensMax = Math.ceil(checkpointMs / pace.tokenMs) + 3

/**
 * One round: nodes, clients, a plan of faults that follows from the seed, then peace, and the question whether the ledger
 * says what the clients saw. The round has a database of its own.
 */
export async function runRound(options: RoundOptions): Promise<RoundResult> {
  const { seed, postgres } = options
  const name = `round_${seed}`
  await using stack = new AsyncDisposableStack()
  const database = await postgres.createDatabase(name)
  stack.defer(async () => {
    await database.close()
    await postgres.dropDatabase(name)
  })
  const upstream = await startModelUpstream(seed, pace)
  stack.defer(() => upstream.close())
  const receiver = await startReceiver(new Random(seed))
  stack.defer(() => receiver.close())
  const round = new Round(options, database, name, { upstream, receiver })
  stack.defer(() => round.abandon())
  return await round.run()
}

class Round {
  readonly #options: RoundOptions
  readonly #database: Database
  readonly #databaseName: string
  readonly #upstream: ModelUpstream
  readonly #receiver: Receiver
  readonly #deliverers: Deliverers
  readonly #random: Random
  readonly #plan: Plan
  readonly #left: NodeFault[]
  readonly #slots: Slot[] = []
  readonly #done: Done[] = []
  readonly #problems: string[] = []
  readonly #recoveries: Promise<void>[] = []
  #load: Load | undefined
  #kills = 0
  #postgresKills = 0
  #slowestEndMs = 0

  constructor(
    options: RoundOptions,
    database: Database,
    databaseName: string,
    { upstream, receiver }: { readonly upstream: ModelUpstream; readonly receiver: Receiver },
  ) {
    this.#options = options
    this.#database = database
    this.#databaseName = databaseName
    this.#upstream = upstream
    this.#receiver = receiver
    this.#deliverers = new Deliverers(database, options.postgres.urlOf(databaseName))
    this.#random = new Random(options.seed)
    this.#plan = makePlan(this.#random.branch(), options.size)
    this.#left = [...this.#plan.nodes]
  }

  async run(): Promise<RoundResult> {
    const { accountIds, apiKeys } = await openPurses(this.#database, this.#options.clients)
    const { deliversWebhooks } = this.#options
    if (deliversWebhooks) await openEndpoints(this.#database, accountIds, this.#receiver)
    for (let index = 0; index < this.#options.nodes; index += 1) this.#slots.push(await this.#openSlot(index))
    await this.#slots[0]!.warmUp()
    await Promise.all(this.#slots.map((slot) => slot.start()))
    this.#load = new Load({
      random: this.#random.branch(),
      apiKeys,
      address: (random) => {
        const open = this.#slots.filter((slot) => slot.takesRequests)
        return open.length === 0 ? undefined : random.pick(open).address(random)
      },
      tokenMs: pace.tokenMs,
    })
    await Promise.all([
      ...this.#slots.map((slot) => this.#work(slot)),
      this.#workOnPostgres(),
      this.#deliverers.work(deliversWebhooks ? this.#plan.deliverers : []),
    ])
    await this.#calmDown()
    if (deliversWebhooks) await this.#deliverers.drain()
    return this.#judge(accountIds)
  }

  /** What a round that broke off left running. */
  async abandon(): Promise<void> {
    this.#left.length = 0
    this.#deliverers.abandon()
    for (const slot of this.#slots) {
      await slot.close()
      slot.node?.signal('SIGKILL')
      await slot.node?.exited
    }
  }

  #openSlot(index: number): Promise<Slot> {
    const { postgres } = this.#options
    return Slot.open({
      random: this.#random.branch(),
      folder: join(postgres.folder, this.#databaseName, String(index)),
      postgresSocket: postgres.socketPath,
      databaseName: this.#databaseName,
      settings: {
        upstreamUrl: this.#upstream.url,
        leaseMs,
        checkpointMs,
        drainMs,
      },
    })
  }

  /** Takes faults from the plan until there are none left. */
  async #work(slot: Slot): Promise<void> {
    for (let fault = this.#take(slot); fault !== undefined; fault = this.#take(slot)) {
      await this.#inflict(slot, fault)
    }
    if (slot.node === undefined) await slot.start()
  }

  /** The next fault of the plan; where a process runs, one that needs no new process as long as there is one. */
  #take(slot: Slot): NodeFault | undefined {
    const next = slot.node === undefined ? 0 : this.#left.findIndex(({ type }) => type !== 'failpoint')
    return this.#left.splice(Math.max(0, next), 1)[0]
  }

  async #inflict(slot: Slot, fault: NodeFault): Promise<void> {
    if (fault.type === 'failpoint') return this.#dieAt(slot, fault)
    const node = slot.node ?? (await slot.start())
    if (fault.type === 'lost') return this.#lose(slot, node, fault)
    await sleep(fault.afterMs)
    switch (fault.type) {
      case 'kill':
        return this.#end(slot, node, faultName(fault), 'SIGKILL')
      case 'terminate':
        return this.#end(slot, node, faultName(fault), 'SIGTERM')
      case 'pause':
        return this.#meet(fault, node, () => this.#pause(slot, node))
      case 'database-cut':
        return this.#meet(fault, node, async () => void slot.back.cutAll(slot.random.pick(['close', 'reset'])))
      case 'client-cut':
        return this.#meet(
          fault,
          node,
          async () => void slot.front.cutAll(slot.random.pick(['close', 'half-close', 'reset'])),
        )
    }
  }

  /** Starts a process that dies at the failpoint, with the clients' requests on it. */
  async #dieAt(slot: Slot, fault: NodeFault & { type: 'failpoint' }): Promise<void> {
    if (slot.node !== undefined) await this.#end(slot, slot.node, 'node: terminate', 'SIGTERM')
    const node = await slot.launch(fault)
    const exit = isRunning(node) ? await within(faultMsMax, node.exited) : node
    if (isRunning(node) && exit === undefined) {
      // Nothing led past it: an ordinary kill then, and the table will tell if the failpoint was never reached at all.
      return this.#end(slot, node, 'node: kill', 'SIGKILL')
    }
    slot.vacate()
    const nodeId = isRunning(node) ? node.id : 'none'
    this.#countKill(exit!, nodeId)
    await this.#remember({
      name: faultName(fault),
      node: nodeId,
      fromMs: Date.now() - exitLagMs,
      state: failpointState(fault),
    })
    this.#recover(nodeId)
  }

  async #end(slot: Slot, node: NodeProcess, name: string, signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
    const fromMs = Date.now()
    slot.vacate()
    node.signal(signal)
    const exit = await within(exitMsMax, node.exited)
    if (exit === undefined) {
      this.#problems.push(`${exitMsMax} ms after ${signal} node ${node.id} has not ended`)
      node.signal('SIGKILL')
    } else if (signal === 'SIGKILL') this.#countKill(exit, node.id)
    else if (exit.code !== 0)
      this.#problems.push(`node ${node.id} after SIGTERM: ${exit.signal ?? exit.code}, ${exit.complaint}`)
    await this.#remember({ name, node: node.id, fromMs })
    this.#recover(node.id)
  }

  #countKill({ signal, code, complaint }: Exit, node: string): void {
    if (signal === 'SIGKILL') this.#kills += 1
    else this.#problems.push(`node ${node} was to be killed and ended by itself: ${signal ?? code}, ${complaint}`)
  }

  /** Sleeps until others have ended what it holds, then goes on as if nothing had been. */
  async #pause(slot: Slot, node: NodeProcess): Promise<void> {
    slot.takesRequests = false
    node.signal('SIGSTOP')
    try {
      await sleep(leaseMs)
      await this.#allEnded(node.id)
    } finally {
      node.signal('SIGCONT')
      slot.takesRequests = true
    }
  }

  async #lose(slot: Slot, node: NodeProcess, fault: NodeFault & { type: 'lost' }): Promise<void> {
    const fired = slot.back.use({ type: 'cut-on', pattern: fault.what, when: fault.when }).then(() => true)
    const isFired = await within(faultMsMax, fired)
    if (isFired === true) await this.#remember({ name: faultName(fault), node: node.id, fromMs: Date.now() })
    else void slot.back.use({ type: 'pass' })
  }

  /** Does something to a running node at a moment when it hurts, and writes down whom it met. */
  async #meet(fault: NodeFault, node: NodeProcess, act: () => Promise<void>): Promise<void> {
    const checkpointed = await this.#moment(node.id)
    const at = Date.now()
    await act()
    const proxiedOnly = fault.type === 'client-cut'
    this.#done.push({ name: faultName(fault), node: node.id, proxiedOnly, fromMs: at, toMs: at, checkpointed })
  }

  async #workOnPostgres(): Promise<void> {
    for (const fault of this.#plan.postgres) {
      await sleep(fault.afterMs)
      await this.#inflictOnPostgres(fault)
    }
  }

  async #inflictOnPostgres(fault: PostgresFault): Promise<void> {
    const { postgres } = this.#options
    const checkpointed = await this.#moment(undefined)
    const fromMs = Date.now()
    if (fault.type === 'kill') await postgres.kill()
    else if (fault.type === 'restart') await postgres.restart()
    else await postgres.pause(leaseMs / 2)
    await persistently(() => this.#database.query('select 1'))
    this.#done.push({ name: postgresFaultName(fault), node: undefined, fromMs, toMs: Date.now(), checkpointed })
    if (fault.type === 'kill') this.#postgresKills += 1
  }

  async #remember(fault: Pick<Done, 'name' | 'node' | 'fromMs' | 'state'>): Promise<void> {
    const toMs = Date.now()
    this.#done.push({ ...fault, toMs, checkpointed: await this.#checkpointed() })
  }

  /** Which requests have a checkpoint now; none are known while the database is away. */
  async #checkpointed(): Promise<ReadonlySet<string>> {
    const rows = await this.#database
      .query<{ id: string }>('select id from holds where prompt_tokens is not null')
      .catch(() => [])
    return new Set(rows.map(({ id }) => id.replaceAll('-', '')))
  }

  /** Waits a while for a moment at which there is something to lose: a stream under way that has a checkpoint. */
  async #moment(node: string | undefined): Promise<ReadonlySet<string>> {
    const deadline = Date.now() + momentMsMax
    for (;;) {
      const checkpointed = await this.#checkpointed()
      const isWorthIt = this.#load!.seen.some((seen) => {
        const [generated] = this.#upstream.generated.get(seen.name) ?? []
        if (generated === undefined || seen.closedMs !== undefined || (node !== undefined && seen.node !== node))
          return false
        return generated.finishedMs === undefined && !generated.hungUp && checkpointed.has(generated.digits)
      })
      if (isWorthIt || Date.now() > deadline) return checkpointed
      await sleep(pollMs)
    }
  }

  /** Watches, beside everything else, that what a dead node held comes to its end, and that the books are right then. */
  #recover(node: string): void {
    const recovered = this.#allEnded(node).then(async () => {
      this.#problems.push(...(await persistently(() => findViolations(this.#database))))
    })
    this.#recoveries.push(recovered.catch((error: unknown) => void this.#problems.push(String(error))))
  }

  async #allEnded(node: string): Promise<void> {
    const fromMs = Date.now()
    for (;;) {
      const open = await persistently(() => findOpenHolds(this.#database, node))
      const passedMs = Date.now() - fromMs
      this.#slowestEndMs = Math.max(this.#slowestEndMs, passedMs)
      if (open.length === 0) return
      if (passedMs > endedMsMax)
        throw new Error(`${open.length} holds of node ${node} have not ended in ${passedMs} ms`)
      await sleep(pollMs)
    }
  }

  /** No more faults: requests under way end, then the nodes do, in good order. */
  async #calmDown(): Promise<void> {
    await this.#load!.stop()
    await Promise.all(this.#recoveries)
    for (const slot of this.#slots)
      if (slot.node !== undefined) await this.#end(slot, slot.node, 'node: terminate', 'SIGTERM')
    await Promise.all(this.#recoveries)
    await Promise.all(this.#slots.map((slot) => slot.close()))
  }

  async #judge(accountIds: readonly string[]): Promise<RoundResult> {
    const rows = await readRows(this.#database, accountIds)
    const sides = { seen: this.#load!.seen, generated: this.#upstream.generated, rows }
    const deaths = this.#deliverers.deaths.map(({ name, fromMs }) => ({
      name,
      node: undefined,
      fromMs,
      toMs: fromMs,
      checkpointed: new Set<string>(),
    }))
    this.#options.coverage.add([...this.#done, ...deaths], sides)
    return {
      ...this.#progress(),
      answered: sides.seen.filter(({ whole }) => whole).length,
      received: this.#receiver.received.length,
      slowestEndMs: this.#slowestEndMs,
      problems: [
        ...this.#problems,
        ...(await findViolations(this.#database)),
        ...findContradictions({ ...sides, checkpointTokensMax }),
        ...this.#deliverers.problems,
        ...(this.#options.deliversWebhooks ? findLostEvents(rows, this.#receiver.received) : []),
      ],
    }
  }

  #progress(): Progress {
    return { kills: this.#kills, postgresKills: this.#postgresKills, requests: this.#load?.seen.length ?? 0 }
  }
}

async function within<Result>(ms: number, promise: Promise<Result>): Promise<Result | undefined> {
  const patience = new AbortController()
  const late = sleep(ms, undefined, { signal: patience.signal }).catch(() => undefined)
  try {
    return await Promise.race([promise, late])
  } finally {
    patience.abort()
  }
}
