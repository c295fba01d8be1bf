import { plainArray } from '../db/array-literal.ts'
import type { Groups } from '../db/batch.ts'
import { type Connection, type Database, isConnectionLost, isLockTimeout } from '../db/database.ts'
import { retry } from '../db/retry.ts'
import { ServiceError } from '../errors.ts'
import { ConcurrencyLimit } from '../fairness/concurrency-limit.ts'
import { type Usdc, zero } from '../money/usdc.ts'
import { type Failpoint, noFailpoint } from '../process/failpoints.ts'
import type {
  CheckpointCall,
  End,
  EndCall,
  ExtensionCall,
  ExtensionDecision,
  Hold,
  HoldCall,
  HoldDecision,
  PaidHoldCall,
  Payer,
  RefusalCall,
  ToolCallRecord,
} from './hold-calls.ts'
import { HoldStatements, type PlacedCall } from './hold-statements.ts'
import { NodeRequests, type WholeEnd } from './node-requests.ts'
import { type BatchPartition, PartitionQueues } from './partition-queues.ts'
import type { RequestId } from './request-id.ts'

export type HoldsOptions = {
  readonly database: Database
  /** The node that owns the requests it holds. */
  readonly node: string
  readonly priceVersion: string
  /** The most that one account may have in flight. */
  readonly inFlightCap: Usdc
  /** How long a request waits for the ledger before the client gets a retry advice. The call itself still completes. */
  readonly waitMsMax?: number
  /** A refusal or a checkpoint could not be written. No money depends on it. */
  readonly onLost?: (error: unknown) => void
  /** The end of a request found no hold: a failover lost it. Nothing is charged, so this much is lost. */
  readonly onHoldLost?: (end: EndCall) => void
  readonly failpoint?: Failpoint
  /** How long the end of this node's lease is remembered before it is read again. */
  readonly leaseReadMs?: number
  /** Renews this node's lease. Called when the ledger refuses calls because it has expired. */
  readonly renewLease?: () => Promise<unknown>
  /**
   * Whether one batch takes calls of all partitions. Not with one partition, which is cheaper by its number, and not on a cluster,
   * where a batch goes to the worker of its partition.
   */
  readonly spansPartitions?: boolean
  /** Reports each commit: its number of calls and its duration. */
  readonly onBatch?: (operation: LedgerOperation, size: number, ms: number) => void
}

export const ledgerOperations = ['hold', 'end', 'extend', 'tool_call', 'checkpoint', 'refuse'] as const
export type LedgerOperation = (typeof ledgerOperations)[number]

/**
 * The only writer of holds. Calls are committed in groups, one queue per kind (on a cluster per partition and kind), so that under
 * load hundreds of requests share one durable commit. The database makes all decisions: no balance is cached here.
 *
 * When a reply is lost or the database is down, calls are retried until it answers. Each carries the request's id, so a retry moves
 * no money twice. A caller may stop waiting earlier; its call continues.
 */
export class Holds {
  readonly #options: Required<HoldsOptions>
  readonly #statements: HoldStatements
  /** The most locked accounts to wait for concurrently, over all kinds of calls: each occupies a connection. */
  readonly #lockedLimit = new ConcurrencyLimit(2)
  readonly #places = new PartitionQueues<HoldCall, PlacedCall>({
    run: (partition, calls) => this.#underLease(() => this.#statements.place(this.#options.database, partition, calls)),
    ...this.#ofKind('hold'),
    isRepeated: isHoldRepeated,
    laneOf,
    groups: this.#byAccount((...call) => this.#statements.place(...call), lockedCallsMax),
  })
  readonly #ends = new PartitionQueues<WholeEnd, End>({
    run: (partition, calls) => this.#statements.end(this.#options.database, partition, calls),
    ...this.#ofKind('end'),
    laneOf,
    // Never refused: the money must be charged or released. The concurrent requests of this process are bounded.
    queuedMax: Number.POSITIVE_INFINITY,
    groups: this.#byAccount((...call) => this.#statements.end(...call), Number.POSITIVE_INFINITY),
  })
  readonly #checkpoints = new PartitionQueues<CheckpointCall, void>({
    run: (partition, calls) => this.#statements.checkpoint(this.#options.database, partition, calls),
    ...this.#ofKind('checkpoint'),
  })
  readonly #refusals = new PartitionQueues<RefusalCall, void>({
    run: (partition, calls) => this.#statements.refuse(this.#options.database, partition, calls),
    ...this.#ofKind('refuse'),
    // Each transaction costs milliseconds of CPU time, and refused requests are not paid for.
    restMs: 100,
    groups: this.#byAccount((...call) => this.#statements.refuse(...call), lockedCallsMax),
  })
  readonly #extensions = new PartitionQueues<ExtensionCall, ExtensionDecision>({
    run: (partition, calls) =>
      this.#underLease(() => this.#statements.extend(this.#options.database, partition, calls)),
    ...this.#ofKind('extend'),
    laneOf,
    groups: this.#byAccount((...call) => this.#statements.extend(...call), lockedCallsMax),
  })
  readonly #toolCalls = new PartitionQueues<ToolCallRecord, void>({
    run: (partition, calls) => this.#statements.recordToolCalls(this.#options.database, partition, calls),
    ...this.#ofKind('tool_call'),
  })
  /** Tool calls that are being written, by request. A request ends after them. */
  readonly #recording = new Map<RequestId, Promise<void>>()
  /** Holds that are not decided yet. Their callers may have stopped waiting. */
  readonly #deciding = new Map<RequestId, Promise<HoldDecision | string>>()
  readonly #requests = new NodeRequests()
  #isStopped = false

  constructor(options: HoldsOptions) {
    this.#options = {
      waitMsMax: 10_000,
      onLost: () => {},
      onHoldLost: () => {},
      failpoint: noFailpoint,
      leaseReadMs: 1_000,
      renewLease: async () => {},
      spansPartitions: false,
      onBatch: () => {},
      ...options,
    }
    this.#statements = new HoldStatements(this.#options)
  }

  /** The node that owns these holds. */
  get node(): string {
    return this.#options.node
  }

  /**
   * Reserves the quote, or returns why not. Calling it twice with the same object returns the first decision; an equal object is a new
   * call, and its request id must not have been placed before. Throws `KeyChangedError` when the key's options are not those that
   * allowed the request.
   */
  async place(call: HoldCall): Promise<HoldDecision> {
    return requireDecision(await this.#decide(call.requestId, () => this.#places.add(call.payer.partition, call)))
  }

  /**
   * Credits a payment that the gateway has accepted and reserves the quote of the request that it pays, in one call. A refusal leaves
   * the payment's value as credit. `used`: the payment was credited for another request.
   */
  async placePaid(call: PaidHoldCall): Promise<HoldDecision | 'used'> {
    const decision = await this.#decide(call.requestId, () => this.#payAndPlace(call))
    return decision === 'used' ? decision : requireDecision(decision)
  }

  /** Not batched: each call credits a payment of its own. A locked account delays its own calls only. */
  async #payAndPlace(call: PaidHoldCall): Promise<PlacedCall | 'used'> {
    const { database, onBatch } = this.#options
    const run = async () => {
      const startedMs = performance.now()
      const placed = await this.#underLease(() => this.#statements.payAndPlace(database, call))
      onBatch('hold', 1, performance.now() - startedMs)
      return placed
    }
    let isLocked = false
    return retry(
      () => (isLocked ? this.#lockedLimit.run(run) : run()),
      (error) => {
        isLocked ||= isLockTimeout(error)
        return isHoldRepeated(error) && !this.#isStopped
      },
    )
  }

  async #decide<Word extends string>(
    requestId: RequestId,
    place: () => Promise<HoldDecision | Word>,
  ): Promise<HoldDecision | Word> {
    this.#requests.begin(requestId)
    const decided = place()
    this.#deciding.set(requestId, decided)
    const onDecided = (isPlaced: boolean) => {
      this.#deciding.delete(requestId)
      if (!isPlaced) this.#requests.forget(requestId)
    }
    decided.then(
      (decision) => onDecided(isHeld(decision)),
      () => onDecided(false),
    )
    return this.#withTimeout(decided, () => {
      // The caller has stopped waiting. If the hold succeeds later, it is voided.
      decided
        .then(async (late) => {
          if (isHeld(late)) await this.end(unserved(late.hold))
        })
        .catch(this.#options.onLost)
    })
  }

  /**
   * Charges or voids. A request ends once; a second call gets the stored end. A caller that must not report a failure once the
   * charge may have been written passes `clientsGone`, which resolves when no client waits for the outcome: the wait goes on until then.
   */
  async end(call: EndCall, clientsGone?: () => Promise<void>): Promise<End> {
    const recording = this.#recording.get(call.requestId)
    const write = () => this.#writeEnd(this.#requests.wholeEnd(call))
    const ended = recording === undefined ? write() : recording.then(write)
    return this.#withTimeout(ended, () => ended.catch(this.#options.onLost), clientsGone)
  }

  /** Whether this node holds the request and has not ended it. */
  isServing(requestId: RequestId): boolean {
    return this.#requests.isServing(requestId)
  }

  /** The requests that this node holds and has not ended. */
  get serving(): readonly RequestId[] {
    return this.#requests.serving
  }

  /** Writes an end of this node again, unchanged. Undefined when the node does not remember it. */
  async endAgain(requestId: RequestId): Promise<End | undefined> {
    const end = this.#requests.endOf(requestId)
    return end && this.#writeEnd({ ...end })
  }

  /** Raises the most that an open request may cost, or returns why not. The request's end releases it, like the hold itself. */
  async extend(call: ExtensionCall): Promise<ExtensionDecision> {
    const decided = this.#extensions.add(call.payer.partition, call).then((decision) => {
      if (decision === 'extended') this.#requests.setExtension(call)
      return decision
    })
    return this.#withTimeout(decided, () => decided.catch(this.#options.onLost))
  }

  /** Records a tool call in the background. Its cost is in the ledger before its request ends. */
  recordToolCall(call: ToolCallRecord): void {
    const { requestId } = call
    this.#requests.addToolCall(call)
    const before = this.#recording.get(requestId)
    const written = this.#toolCalls.add(call.partition, call).catch(this.#options.onLost)
    const recording = Promise.all([before, written]).then(() => {
      if (this.#recording.get(requestId) === recording) this.#recording.delete(requestId)
    })
    this.#recording.set(requestId, recording)
  }

  /** Records the progress of a stream in the background: a crash charges up to here. */
  checkpoint(call: CheckpointCall): void {
    this.#checkpoints.add(call.partition, call).catch(this.#options.onLost)
  }

  /**
   * Logs a refused request in the background: no customer waits for it and no money depends on it. A request whose hold is not decided
   * yet, because its caller stopped waiting, is logged only if nothing is held: a request that is both refused and held could not end.
   */
  refuse(call: RefusalCall): void {
    const write = () => this.#refusals.add(call.payer.partition, call)
    const deciding = this.#deciding.get(call.requestId)
    const written =
      deciding === undefined
        ? write()
        : deciding.then(
            (decision) => (isHeld(decision) ? undefined : write()),
            (error: unknown) => (isHoldRepeated(error) ? undefined : write()),
          )
    written.catch(this.#options.onLost)
  }

  /** How many calls of a kind wait for their batch. */
  queued(operation: LedgerOperation): number {
    const queues = {
      hold: this.#places,
      end: this.#ends,
      extend: this.#extensions,
      tool_call: this.#toolCalls,
      checkpoint: this.#checkpoints,
      refuse: this.#refusals,
    }
    return queues[operation].queued
  }

  /** Resolves when every call so far is in the database. */
  async drained(): Promise<void> {
    // Ends that wait for tool calls are not queued yet, nor are refusals that wait for a decision.
    await Promise.allSettled([...this.#recording.values(), ...this.#deciding.values()])
    await Promise.all(this.#all().map((queues) => queues.drained()))
  }

  /** Abandons the calls that the database does not answer. Their holds stay open; another node ends them. */
  stop(): void {
    this.#isStopped = true
    for (const queues of this.#all()) queues.stop()
  }

  /** A request whose end fails is no longer served: what the ledger still holds of it is ended like an orphan. */
  async #writeEnd(end: WholeEnd): Promise<End> {
    try {
      const stored = await this.#addEnd(end)
      if (stored.status === 'lost') this.#options.onHoldLost(end)
      // Another node may have ended it first, as an orphan: then this end was never the request's.
      if (stored.status === end.status && stored.charged === end.charged) this.#requests.ended(end)
      else this.#requests.forget(end.requestId)
      return stored
    } catch (error) {
      this.#requests.forget(end.requestId)
      throw error
    }
  }

  /** A failover can lose an extension and keep its hold. Without the extension the ledger refuses a charge above the quote. */
  async #addEnd(end: WholeEnd): Promise<End> {
    const { extension, payer } = end
    const add = () => this.#ends.add(payer.partition, end)
    if (extension === undefined) return add()
    return add().catch(async (error: unknown) => {
      if (!isRefusedCharge(error)) throw error
      const decision = await this.#extensions.add(payer.partition, extension)
      if (decision !== 'extended') throw error
      return add()
    })
  }

  #all() {
    return [this.#places, this.#extensions, this.#toolCalls, this.#ends, this.#checkpoints, this.#refusals]
  }

  async #withTimeout<Result>(
    answer: Promise<Result>,
    onGivingUp: () => void,
    clientsGone = async () => {},
  ): Promise<Result> {
    const { promise: late, reject } = Promise.withResolvers<never>()
    const giveUp = () => reject(new LedgerUnavailableError())
    const timer = setTimeout(() => void clientsGone().then(giveUp), this.#options.waitMsMax)
    try {
      return await Promise.race([answer, late])
    } catch (error) {
      if (error instanceof LedgerUnavailableError) onGivingUp()
      if (!isDeadLease(error)) throw error
      this.#statements.forgetLease()
      throw new LedgerUnavailableError(error)
    } finally {
      clearTimeout(timer)
    }
  }

  /**
   * Runs calls that need this node's lease. While the machine was suspended the database's clock went on, but the timer that renews the
   * lease did not: then the lease is renewed now, and the calls run again. Nothing was written before.
   */
  async #underLease<Result>(run: () => Promise<Result>): Promise<Result> {
    try {
      return await run()
    } catch (error) {
      if (!isDeadLease(error)) throw error
      this.#statements.forgetLease()
      await this.#options.renewLease()
      return run()
    }
  }

  #ofKind(operation: LedgerOperation) {
    return {
      spansPartitions: () => this.#options.spansPartitions,
      onBatch: (size: number, ms: number) => this.#options.onBatch(operation, size, ms),
    }
  }

  /** The ledger's functions give up on an account that another session keeps locked (`lock_timeout`). */
  #byAccount<Paid extends { readonly payer: Payer }, Result>(
    run: RunCalls<Paid, Result>,
    queuedMax: number,
  ): (partition: BatchPartition) => Groups<Paid, Result> {
    return (partition) => ({
      of: ({ payer }) => payer.accountId,
      isLocked: isLockTimeout,
      runUnlocked: (calls) => this.#runUnlocked(run, partition, calls),
      lockedLimit: this.#lockedLimit,
      queuedMax,
    })
  }

  async #runUnlocked<Paid extends { readonly payer: Payer }, Result>(
    run: RunCalls<Paid, Result>,
    partition: BatchPartition,
    calls: readonly Paid[],
  ): Promise<readonly ({ readonly result: Result } | undefined)[]> {
    return this.#options.database.transaction(async (connection) => {
      const accounts = [...new Set(calls.map(({ payer }) => payer.accountId))]
      const rows = await connection.queryPrepared<{ id: string }>('lock_unlocked', lockUnlocked, [
        partition,
        plainArray(accounts),
      ])
      const locked = new Set(rows.map(({ id }) => id))
      const runnable = calls.filter(({ payer }) => locked.has(payer.accountId))
      const results = runnable.length === 0 ? [] : await run(connection, partition, runnable)
      const answers = new Map(runnable.map((call, index) => [call, { result: results[index] as Result }]))
      return calls.map((call) => answers.get(call))
    })
  }
}

// Deadlocks and lock timeouts.
const collisionStates = /^(40|55)/

/**
 * When PostgreSQL is out of disk or memory, nothing was held, and this may last: the client is told immediately to retry. Lost
 * connections and collisions are retried until the call succeeds, because money is at stake.
 */
function isHoldRepeated(error: unknown): boolean {
  return isConnectionLost(error) || collisionStates.test(String((error as { code?: unknown } | null)?.code ?? ''))
}

type RunCalls<Call, Result> = (
  connection: Connection,
  partition: BatchPartition,
  calls: readonly Call[],
) => Promise<readonly Result[]>

/** The most holds, extensions or refusals that wait for one locked account. */
const lockedCallsMax = 512

function isDeadLease(error: unknown): boolean {
  return (error as { code?: unknown } | null)?.code === 'P0L01'
}

/** The check `requests_charge`. */
function isRefusedCharge(error: unknown): boolean {
  return (error as { code?: unknown } | null)?.code === '23514'
}

/** The end of a hold whose caller has stopped waiting. */
function unserved(hold: Hold): EndCall {
  return {
    requestId: hold.requestId,
    payer: hold.payer,
    status: 'failed',
    voided: true,
    charged: zero,
    searchCost: zero,
    searchCalls: 0,
    fetchCalls: 0,
    usage: undefined,
    finishReason: undefined,
    errorCode: 'overloaded',
    firstTokenMs: undefined,
    totalMs: 0,
  }
}

// In id order, as every function locks them. The function that follows in the same transaction does not wait.
const lockUnlocked = `
  select a.id from accounts a where a.partition = coalesce($1, a.partition) and a.id = any ($2::uuid[])
   order by a.id for no key update skip locked`

function isHeld(decided: HoldDecision | string): decided is { readonly hold: Hold } {
  return typeof decided !== 'string' && 'hold' in decided
}

/** Throws when nothing was decided about the hold. */
function requireDecision(placed: PlacedCall): HoldDecision {
  if (placed === 'ended') throw new LedgerUnavailableError()
  if (placed === 'key_changed') throw new KeyChangedError()
  return placed
}

/**
 * Every row that a batch locks belongs to an account. An account always uses the same lane, so batches of different lanes never
 * conflict.
 */
function laneOf({ payer: { accountId } }: { readonly payer: Payer }): number {
  return accountId.charCodeAt(accountId.length - 1) & 1
}

/** The database does not answer, or this node's lease has expired. */
export class LedgerUnavailableError extends ServiceError {
  constructor(cause?: unknown) {
    super(
      'overloaded',
      'The ledger does not respond at the moment. Try again shortly. The request log will show the outcome of this request.',
      {
        retryAfterMs: 2000,
        cause,
      },
    )
  }
}

/** The options of the key changed after the request was checked against them. Nothing is held. */
export class KeyChangedError extends ServiceError {
  constructor() {
    super('overloaded', 'The options of this API key are being changed. Send the request again.', {
      retryAfterMs: 1000,
    })
  }
}
