import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Database } from '../../src/db/database.ts'
import { type Coverage, type Done, failpointState, faultName, postgresFaultName } from './coverage.ts'
import { findContradictions, findOpenHolds, findViolations, readRows } from './history.ts'
import { Load, openAccounts } from './load.ts'
import { type ModelUpstream, startModelUpstream } from './model-upstream.ts'
import { type Exit, isRunning, type NodeProcess } from './node-process.ts'
import { makePlan, type NodeFault, type Plan, type PlanSize, type PostgresFault } from './plan.ts'
import { type FaultyDatabase, retryUntilConnected } from './postgres-server.ts'
import { Random } from './random.ts'
import { Slot } from './slot.ts'
import type { Rule } from './tcp-proxy.ts'
import { Deliverers, findLostEvents, openEndpoints, type Receiver, startReceiver } from './webhooks.ts'

export type RoundOptions = {
  readonly seed: number
  readonly size: PlanSize
  readonly nodes: number
  readonly clients: number
  readonly postgres: FaultyDatabase
  readonly coverage: Coverage
  /** Whether webhooks are delivered, by processes that are killed too. */
  readonly deliversWebhooks: boolean
}

type Progress = { readonly kills: number; readonly postgresKills: number; readonly requests: number }

export type RoundResult = Progress & {
  /** Requests with complete answers. */
  readonly answered: number
  /** Webhook messages, including repeated ones. */
  readonly received: number
  /** The longest time that a hold existed after its node's end. */
  readonly slowestEndMs: number
  readonly problems: readonly string[]
}

// Short answers: what matters is how often faults hit a request in each state, not for how long.
const pace = { tokensMax: 50, tokenMs: 10, silenceMsMax: 120 }
// With shorter leases on an overloaded machine, living nodes lose theirs repeatedly, and a node without a lease ends no holds.
const leaseMs = 2_000
const checkpointMs = 60
const drainMs = 5_000
/** Only for a process that hangs: on a busy machine the last steps of a stop take longer than ten seconds. */
const exitMsMax = drainMs + 60_000
// Holds of a dead node end once another node has been up for longer than a lease. On a slow machine, faults come faster than that and
// starts take a minute: what counts is how long a node has been up.
const endedUpMsMax = 60_000
const calmAfterMs = 10_000
const faultMsMax = 30_000
const momentMsMax = 10_000
const pollMs = 20
// Every dead node is watched until its holds have ended, for seconds: a shorter pause only costs CPU time.
const endedPollMs = 100
// A client notices the closed connection before the runner notices the exit of the process.
const exitLagMs = 50
// One more chunk may be in flight.
const checkpointTokensMax = Math.ceil(checkpointMs / pace.tokenMs) + 3

/**
 * One round: nodes, clients, and faults planned from the seed; then a clean stop, and a comparison of the ledger with what the clients
 * saw. The round has its own database.
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
  readonly #remaining: NodeFault[]
  readonly #slots: Slot[] = []
  readonly #done: Done[] = []
  readonly #problems: string[] = []
  readonly #recoveries: Promise<void>[] = []
  #load: Load | undefined
  #kills = 0
  #postgresKills = 0
  #slowestEndMs = 0
  /** Dead nodes whose holds end late. No fault is injected until they have ended. */
  #lateNodes = 0

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
    this.#remaining = [...this.#plan.nodes]
  }

  async run(): Promise<RoundResult> {
    const { accountIds, apiKeys } = await openAccounts(
      this.#database,
      this.#options.clients,
      this.#options.postgres.partitions,
    )
    const { deliversWebhooks } = this.#options
    if (deliversWebhooks) await openEndpoints(this.#database, accountIds, this.#receiver)
    for (let index = 0; index < this.#options.nodes; index += 1) this.#slots.push(await this.#openSlot(index))
    await this.#slots[0]!.warmUp()
    await Promise.all(this.#slots.map((slot) => slot.start()))
    this.#load = new Load({
      random: this.#random.branch(),
      apiKeys,
      address: (random) => {
        const open = this.#slots.filter(({ upSinceMs }) => upSinceMs !== undefined)
        return open.length === 0 ? undefined : random.pick(open).address(random)
      },
      tokenMs: pace.tokenMs,
    })
    await Promise.all([
      ...this.#slots.map((slot) => this.#work(slot)),
      this.#workOnPostgres(),
      this.#deliverers.work(deliversWebhooks ? this.#plan.deliverers : []),
    ])
    await this.#stopCleanly()
    if (deliversWebhooks) await this.#deliverers.drain()
    return this.#compare(accountIds)
  }

  /** Stops everything that an aborted round left running. */
  async abandon(): Promise<void> {
    this.#remaining.length = 0
    this.#deliverers.abandon()
    for (const slot of this.#slots) {
      await slot.close()
      slot.node?.signal('SIGKILL')
      await slot.node?.exited
    }
    // Its clients would keep the process alive.
    await this.#load?.stop()
  }

  #openSlot(index: number): Promise<Slot> {
    const { postgres } = this.#options
    return Slot.open({
      random: this.#random.branch(),
      folder: join(postgres.folder, this.#databaseName, String(index)),
      postgres: postgres.address,
      databaseName: this.#databaseName,
      untilConnected: () => retryUntilConnected(() => this.#database.query('select 1')),
      settings: {
        upstreamUrl: this.#upstream.url,
        leaseMs,
        checkpointMs,
        drainMs,
        environment: { LEDGER_PARTITIONS: String(postgres.partitions) },
      },
    })
  }

  /** Injects the planned faults until none is left. */
  async #work(slot: Slot): Promise<void> {
    for (let fault = this.#take(slot); fault !== undefined; fault = this.#take(slot)) {
      await this.#inject(slot, fault)
      if (this.#lateNodes === 0) continue
      if (slot.node === undefined) await slot.start()
      await this.#untilNoneIsLate()
    }
    if (slot.node === undefined) await slot.start()
  }

  async #untilNoneIsLate(): Promise<void> {
    while (this.#lateNodes > 0) await sleep(endedPollMs)
  }

  /** The next planned fault. While a process runs, one that needs no new process if possible. */
  #take(slot: Slot): NodeFault | undefined {
    const next = slot.node === undefined ? 0 : this.#remaining.findIndex(({ type }) => type !== 'failpoint')
    return this.#remaining.splice(Math.max(0, next), 1)[0]
  }

  async #inject(slot: Slot, fault: NodeFault): Promise<void> {
    if (fault.type === 'failpoint') return this.#dieAt(slot, fault)
    const node = slot.node ?? (await slot.start())
    if (fault.type === 'lost' || fault.type === 'late') return this.#lose(slot, node, fault)
    await sleep(fault.afterMs)
    switch (fault.type) {
      case 'kill':
        return this.#end(slot, node, faultName(fault), 'SIGKILL')
      case 'terminate':
        return this.#end(slot, node, faultName(fault), 'SIGTERM')
      case 'pause':
        return this.#injectDuringStream(fault, node, () => this.#pause(slot, node))
      case 'database-cut':
        return this.#injectDuringStream(
          fault,
          node,
          async () => void slot.back.cutAll(slot.random.pick(['close', 'reset'])),
        )
      case 'client-cut':
        return this.#injectDuringStream(
          fault,
          node,
          async () => void slot.front.cutAll(slot.random.pick(['close', 'half-close', 'reset'])),
        )
    }
  }

  /** Starts a process that dies at the failpoint while it serves requests. */
  async #dieAt(slot: Slot, fault: NodeFault & { type: 'failpoint' }): Promise<void> {
    if (slot.node !== undefined) await this.#end(slot, slot.node, 'node: terminate', 'SIGTERM')
    const node = await slot.launch(fault)
    const exit = isRunning(node) ? await within(faultMsMax, node.exited) : node
    if (isRunning(node) && exit === undefined) {
      // The failpoint was not reached: kill the process instead. The coverage table shows failpoints that were never reached.
      return this.#end(slot, node, 'node: kill', 'SIGKILL')
    }
    slot.vacate()
    const nodeId = isRunning(node) ? node.id : 'none'
    this.#countKill(exit!, nodeId)
    await this.#record({
      name: faultName(fault),
      node: nodeId,
      fromMs: Date.now() - exitLagMs,
      state: failpointState(fault),
    })
    this.#watchRecovery(nodeId)
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
    await this.#record({ name, node: node.id, fromMs })
    this.#watchRecovery(node.id)
  }

  #countKill({ signal, code, complaint }: Exit, node: string): void {
    if (signal === 'SIGKILL') this.#kills += 1
    else this.#problems.push(`node ${node} was to be killed and ended by itself: ${signal ?? code}, ${complaint}`)
  }

  /** Suspends the node until other nodes have ended its holds, then resumes it. */
  async #pause(slot: Slot, node: NodeProcess): Promise<void> {
    slot.upSinceMs = undefined
    node.signal('SIGSTOP')
    try {
      await sleep(leaseMs)
      await this.#allEnded(node.id)
    } finally {
      node.signal('SIGCONT')
      slot.upSinceMs = Date.now()
    }
  }

  async #lose(slot: Slot, node: NodeProcess, fault: NodeFault & { type: 'lost' | 'late' }): Promise<void> {
    const rule: Rule =
      fault.type === 'late'
        ? { type: 'deliver-late', pattern: fault.what, ms: fault.ms }
        : { type: 'cut-on', pattern: fault.what, when: fault.when }
    const fired = slot.back.use(rule).then(() => true)
    const isFired = await within(faultMsMax, fired)
    if (isFired === true) await this.#record({ name: faultName(fault), node: node.id, fromMs: Date.now() })
    else void slot.back.use({ type: 'pass' })
  }

  /** Injects a fault into a running node while a stream has something to lose, and records it. */
  async #injectDuringStream(fault: NodeFault, node: NodeProcess, act: () => Promise<void>): Promise<void> {
    const checkpointed = await this.#untilStreamHasCheckpoint(node.id)
    const at = Date.now()
    await act()
    const proxiedOnly = fault.type === 'client-cut'
    this.#done.push({ name: faultName(fault), node: node.id, proxiedOnly, fromMs: at, toMs: at, checkpointed })
  }

  async #workOnPostgres(): Promise<void> {
    for (const fault of this.#plan.postgres) {
      await sleep(fault.afterMs)
      await this.#untilNoneIsLate()
      await this.#injectIntoPostgres(fault)
    }
  }

  async #injectIntoPostgres(fault: PostgresFault): Promise<void> {
    const { postgres } = this.#options
    const checkpointed = await this.#untilStreamHasCheckpoint(undefined)
    const fromMs = Date.now()
    if (fault.type === 'kill') await postgres.kill()
    else if (fault.type === 'restart') await postgres.restart()
    else await postgres.pause(leaseMs / 2)
    await retryUntilConnected(() => this.#database.query('select 1'))
    this.#done.push({ name: postgresFaultName(fault), node: undefined, fromMs, toMs: Date.now(), checkpointed })
    if (fault.type === 'kill') this.#postgresKills += 1
  }

  async #record(fault: Pick<Done, 'name' | 'node' | 'fromMs' | 'state'>): Promise<void> {
    const toMs = Date.now()
    this.#done.push({ ...fault, toMs, checkpointed: await this.#checkpointed() })
  }

  /** The requests that have a checkpoint now. Empty while the database is down. */
  async #checkpointed(): Promise<ReadonlySet<string>> {
    const rows = await this.#database
      .query<{ id: string }>('select id from holds where prompt_tokens is not null')
      .catch(() => [])
    return new Set(rows.map(({ id }) => id.replaceAll('-', '')))
  }

  /** Waits, up to a limit, until an open stream has a checkpoint, so that a fault has something to lose. */
  async #untilStreamHasCheckpoint(node: string | undefined): Promise<ReadonlySet<string>> {
    const deadline = Date.now() + momentMsMax
    for (;;) {
      const checkpointed = await this.#checkpointed()
      const hasCheckpoint = this.#load!.seen.some((seen) => {
        const [generated] = this.#upstream.generated.get(seen.name) ?? []
        if (generated === undefined || seen.closedMs !== undefined || (node !== undefined && seen.node !== node))
          return false
        return generated.finishedMs === undefined && !generated.hungUp && checkpointed.has(generated.digits)
      })
      if (hasCheckpoint || Date.now() > deadline) return checkpointed
      await sleep(pollMs)
    }
  }

  /** In the background: waits until all holds of a dead node have ended, then audits the ledger. */
  #watchRecovery(node: string): void {
    const recovered = this.#allEnded(node).then(async () => {
      this.#problems.push(...(await retryUntilConnected(() => findViolations(this.#database))))
    })
    this.#recoveries.push(recovered.catch((error: unknown) => void this.#problems.push(String(error))))
  }

  /** Waits until the holds of a node have ended, or those of all nodes. */
  async #allEnded(node?: string): Promise<void> {
    const fromMs = Date.now()
    let isLate = false
    try {
      for (;;) {
        const open = await retryUntilConnected(() => findOpenHolds(this.#database, node))
        const now = Date.now()
        const passedMs = now - fromMs
        this.#slowestEndMs = Math.max(this.#slowestEndMs, passedMs)
        if (open.length === 0) return
        if (this.#slots.some(({ upSinceMs = now }) => now - Math.max(upSinceMs, fromMs) > endedUpMsMax))
          throw new Error(`${open.length} holds of ${node ?? 'the nodes'} have not ended in ${passedMs} ms`)
        if (!isLate && passedMs > calmAfterMs) {
          isLate = true
          this.#lateNodes += 1
        }
        await sleep(endedPollMs)
      }
    } finally {
      if (isLate) this.#lateNodes -= 1
    }
  }

  /** Injects no more faults, waits until all requests have ended (also those of late statements) and stops the nodes. */
  async #stopCleanly(): Promise<void> {
    await this.#load!.stop()
    await Promise.all(this.#slots.map((slot) => slot.back.delivered()))
    await Promise.all(this.#recoveries)
    await this.#allEnded()
    for (const slot of this.#slots)
      if (slot.node !== undefined) await this.#end(slot, slot.node, 'node: terminate', 'SIGTERM')
    await Promise.all(this.#recoveries)
    await Promise.all(this.#slots.map((slot) => slot.close()))
  }

  async #compare(accountIds: readonly string[]): Promise<RoundResult> {
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
  const timer = new AbortController()
  const late = sleep(ms, undefined, { signal: timer.signal }).catch(() => undefined)
  try {
    return await Promise.race([promise, late])
  } finally {
    timer.abort()
  }
}
