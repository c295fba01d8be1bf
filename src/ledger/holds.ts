import { plainArray, textArray } from '../db/array-literal.ts'
import type { Groups } from '../db/batch.ts'
import { type Connection, type Database, isConnectionLost } from '../db/database.ts'
import { Turns } from '../db/turns.ts'
import { ServiceError } from '../errors.ts'
import { type Failpoint, noFailpoint } from '../failpoints.ts'
import { fromAtomic, type Usdc, zero } from '../money/usdc.ts'
import type {
  CheckpointCall,
  End,
  EndCall,
  ExtensionCall,
  ExtensionDecision,
  Hold,
  HoldCall,
  HoldDecision,
  HoldRefusalCode,
  Payer,
  RefusalCall,
  ToolCallRecord,
} from './hold-calls.ts'
import { PartitionQueues } from './partition-queues.ts'
import type { RequestId } from './request-id.ts'

export type HoldsOptions = {
  readonly database: Database
  /** The node that answers for the requests it holds. */
  readonly node: string
  readonly priceVersion: string
  /** The most that one account may have in flight. */
  readonly inFlightCap: Usdc
  /** How long a request waits for the ledger before it is told to come back. What it asked for is decided all the same. */
  readonly waitMsMax?: number
  /** A refusal or a checkpoint could not be written: no money depends on it. */
  readonly onLost?: (error: unknown) => void
  readonly failpoint?: Failpoint
  /** So many calls shared one commit, which took so long. */
  readonly onBatch?: (operation: LedgerOperation, size: number, ms: number) => void
}

export const ledgerOperations = ['hold', 'end', 'extend', 'tool_call', 'checkpoint', 'refuse'] as const
export type LedgerOperation = (typeof ledgerOperations)[number]

/**
 * The only writer of holds. Calls are committed in groups, one queue per partition and kind, so that under load hundreds
 * of requests share one durable commit. All decisions are the database's: nothing about a balance is kept here.
 *
 * When a reply is lost or the database is away, calls are repeated until it answers: each carries the request's id, so
 * repeating moves no money twice. Who waits for a call may give up before that; the call does not.
 */
export class Holds {
  readonly #options: Required<HoldsOptions>
  /** Locked accounts that wait for their lock at once, over all kinds of calls: each occupies a connection. */
  readonly #lockedTurns = new Turns(2)
  readonly #places = new PartitionQueues<HoldCall, HoldDecision | 'ended'>({
    run: (partition, calls) => this.#place(this.#options.database, partition, calls),
    onBatch: (size, ms) => this.#options.onBatch('hold', size, ms),
    isRepeated: isHoldRepeated,
    laneOf,
    groups: this.#byAccount((...call) => this.#place(...call), lockedCallsMax),
  })
  readonly #ends = new PartitionQueues<EndCall, End>({
    run: (partition, calls) => this.#end(this.#options.database, partition, calls),
    onBatch: (size, ms) => this.#options.onBatch('end', size, ms),
    laneOf,
    // Never refused: the money is charged or given back. The requests that this process serves at once are bounded.
    groups: this.#byAccount((...call) => this.#end(...call), Number.POSITIVE_INFINITY),
  })
  readonly #checkpoints = new PartitionQueues<CheckpointCall, void>({
    run: (partition, calls) => this.#checkpoint(partition, calls),
    onBatch: (size, ms) => this.#options.onBatch('checkpoint', size, ms),
  })
  readonly #refusals = new PartitionQueues<RefusalCall, void>({
    run: (partition, calls) => this.#refuse(this.#options.database, partition, calls),
    onBatch: (size, ms) => this.#options.onBatch('refuse', size, ms),
    groups: this.#byAccount((...call) => this.#refuse(...call), lockedCallsMax),
  })
  readonly #extensions = new PartitionQueues<ExtensionCall, ExtensionDecision>({
    run: (partition, calls) => this.#extend(this.#options.database, partition, calls),
    onBatch: (size, ms) => this.#options.onBatch('extend', size, ms),
    laneOf,
    groups: this.#byAccount((...call) => this.#extend(...call), lockedCallsMax),
  })
  readonly #toolCalls = new PartitionQueues<ToolCallRecord, void>({
    run: (partition, calls) => this.#recordToolCalls(partition, calls),
    onBatch: (size, ms) => this.#options.onBatch('tool_call', size, ms),
  })
  /** Tool calls that are being written, by their request: it ends after them. */
  readonly #recording = new Map<RequestId, Promise<void>>()

  constructor(options: HoldsOptions) {
    this.#options = { waitMsMax: 10_000, onLost: () => {}, failpoint: noFailpoint, onBatch: () => {}, ...options }
  }

  /** The node that these holds belong to. */
  get node(): string {
    return this.#options.node
  }

  /** Reserves the quote, or says why not. Repeating a call with the same id cannot reserve twice. */
  async place(call: HoldCall): Promise<HoldDecision> {
    const decided = this.#places.add(call.payer.partition, call)
    const decision = await this.#patiently(decided, () => {
      // Nobody waits any more. If the hold comes about after all, it is given back at once.
      decided
        .then(async (late) => {
          if (late !== 'ended' && 'hold' in late) await this.end(unserved(late.hold))
        })
        .catch(this.#options.onLost)
    })
    if (decision === 'ended') throw new LedgerUnavailableError()
    return decision
  }

  /**
   * Charges or voids. A request ends once; whoever comes second is told how it ended. Somebody who must not be told of a
   * failure once the charge may have been written goes on waiting until `gone` aborts.
   */
  async end(call: EndCall, gone?: AbortSignal): Promise<End> {
    const recording = this.#recording.get(call.requestId)
    const add = () => this.#ends.add(call.payer.partition, call)
    const ended = recording === undefined ? add() : recording.then(add)
    return this.#patiently(ended, () => ended.catch(this.#options.onLost), gone)
  }

  /** Lets an open request cost more, or says why not. Released with the request's end, like the hold itself. */
  async extend(call: ExtensionCall): Promise<ExtensionDecision> {
    const decided = this.#extensions.add(call.payer.partition, call)
    return this.#patiently(decided, () => decided.catch(this.#options.onLost))
  }

  /** Writes down a tool call in the background. What it cost is in the ledger before its request ends. */
  recordToolCall(call: ToolCallRecord): void {
    const { requestId } = call
    const before = this.#recording.get(requestId)
    const written = this.#toolCalls.add(call.partition, call).catch(this.#options.onLost)
    const recording = Promise.all([before, written]).then(() => {
      if (this.#recording.get(requestId) === recording) this.#recording.delete(requestId)
    })
    this.#recording.set(requestId, recording)
  }

  /** Writes down how far a stream has come, in the background: a crash charges it up to there. */
  checkpoint(call: CheckpointCall): void {
    this.#checkpoints.add(call.partition, call).catch(this.#options.onLost)
  }

  /** Writes a refused request into the log, in the background: no customer waits for it and no money depends on it. */
  refuse(call: RefusalCall): void {
    this.#refusals.add(call.payer.partition, call).catch(this.#options.onLost)
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
    // Ends that wait for tool calls are not queued yet.
    await Promise.all(this.#recording.values())
    await Promise.all(this.#all().map((queues) => queues.drained()))
  }

  /** Gives up what the database does not answer. The holds stay as they are; the next node ends them. */
  stop(): void {
    for (const queues of this.#all()) queues.stop()
  }

  #all() {
    return [this.#places, this.#extensions, this.#toolCalls, this.#ends, this.#checkpoints, this.#refusals]
  }

  async #patiently<Result>(answer: Promise<Result>, onGivingUp: () => void, gone?: AbortSignal): Promise<Result> {
    const { promise: late, reject } = Promise.withResolvers<never>()
    const giveUp = () => reject(new LedgerUnavailableError())
    const timer = setTimeout(() => {
      if (gone === undefined || gone.aborted) giveUp()
      else gone.addEventListener('abort', giveUp, { once: true })
    }, this.#options.waitMsMax)
    try {
      return await Promise.race([answer, late])
    } catch (error) {
      if (error instanceof LedgerUnavailableError) onGivingUp()
      throw isDeadLease(error) ? new LedgerUnavailableError(error) : error
    } finally {
      clearTimeout(timer)
      gone?.removeEventListener('abort', giveUp)
    }
  }

  /** The functions of the ledger give up on an account that another session keeps locked (`lock_timeout`). */
  #byAccount<Paid extends { readonly payer: Payer }, Result>(
    run: RunCalls<Paid, Result>,
    queuedMax: number,
  ): (partition: number) => Groups<Paid, Result> {
    return (partition) => ({
      of: ({ payer }) => payer.accountId,
      isLocked: isLockTimeout,
      runUnlocked: (calls) => this.#runUnlocked(run, partition, calls),
      turns: this.#lockedTurns,
      queuedMax,
    })
  }

  async #runUnlocked<Paid extends { readonly payer: Payer }, Result>(
    run: RunCalls<Paid, Result>,
    partition: number,
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

  async #place(
    connection: Connection,
    partition: number,
    calls: readonly HoldCall[],
  ): Promise<readonly (HoldDecision | 'ended')[]> {
    const accounts = new Positions()
    const keys = new Positions()
    const accountOf = calls.map((call) => accounts.of(call.payer.accountId))
    const keyOf = calls.map((call) => keys.of(call.payer.keyId))
    const { node, priceVersion, inFlightCap, failpoint } = this.#options
    failpoint('before_hold_commit')
    const rows = await connection.queryPrepared<PlacedRow>('place_holds', placeHolds, [
      partition,
      node,
      priceVersion,
      inFlightCap,
      plainArray(accounts.values),
      plainArray(keys.values),
      plainArray(calls.map((call) => call.requestId)),
      plainArray(accountOf),
      plainArray(keyOf),
      plainArray(calls.map((call) => call.quote)),
      textArray(calls.map((call) => call.model)),
      plainArray(calls.map((call) => call.stream)),
      plainArray(calls.map((call) => call.maxTokens)),
      plainArray(calls.map((call) => call.bodyHash ?? null)),
    ])
    failpoint('after_hold_commit')
    const decisions: (HoldDecision | 'ended')[] = []
    for (const row of rows) decisions[row.row_number - 1] = readDecision(calls[row.row_number - 1]!, row)
    return decisions
  }

  async #end(connection: Connection, partition: number, calls: readonly EndCall[]): Promise<readonly End[]> {
    const { failpoint } = this.#options
    failpoint('before_end_commit')
    const rows = await connection.queryPrepared<EndedRow>('end_requests', endRequests, [
      partition,
      plainArray([...new Set(calls.map((call) => call.payer.accountId))]),
      plainArray(calls.map((call) => call.requestId)),
      plainArray(calls.map((call) => call.status)),
      plainArray(calls.map((call) => call.voided)),
      plainArray(calls.map((call) => call.charged)),
      plainArray(calls.map((call) => call.searchCost)),
      plainArray(calls.map((call) => call.searchCalls)),
      plainArray(calls.map((call) => call.fetchCalls)),
      plainArray(calls.map((call) => call.usage?.promptTokens ?? null)),
      plainArray(calls.map((call) => call.usage?.completionTokens ?? null)),
      plainArray(calls.map((call) => call.usage?.reasoningTokens ?? null)),
      plainArray(calls.map((call) => call.usage?.cachedTokens ?? null)),
      plainArray(calls.map((call) => call.usage?.source ?? null)),
      textArray(calls.map((call) => call.finishReason ?? null)),
      textArray(calls.map((call) => call.errorCode ?? null)),
      plainArray(calls.map((call) => call.firstTokenMs ?? null)),
      plainArray(calls.map((call) => call.totalMs)),
    ])
    failpoint('after_end_commit')
    const byId = new Map(rows.map((row) => [row.id, row]))
    return calls.map((call) => {
      const row = byId.get(call.requestId)
      if (row === undefined) throw new RequestNotHeldError(call.requestId)
      return { endedNow: row.ended_now, status: row.status, charged: fromAtomic(row.charged) }
    })
  }

  async #extend(
    connection: Connection,
    partition: number,
    calls: readonly ExtensionCall[],
  ): Promise<readonly ExtensionDecision[]> {
    const accounts = new Positions()
    const keys = new Positions()
    const accountOf = calls.map((call) => accounts.of(call.payer.accountId))
    const keyOf = calls.map((call) => keys.of(call.payer.keyId))
    const { node, inFlightCap } = this.#options
    const rows = await connection.queryPrepared<ExtendedRow>('extend_holds', extendHolds, [
      partition,
      node,
      inFlightCap,
      plainArray(accounts.values),
      plainArray(keys.values),
      plainArray(calls.map((call) => call.requestId)),
      plainArray(accountOf),
      plainArray(keyOf),
      plainArray(calls.map((call) => call.total)),
    ])
    const decisions: ExtensionDecision[] = []
    for (const row of rows) decisions[row.row_number - 1] = row.decision
    return decisions
  }

  async #recordToolCalls(partition: number, calls: readonly ToolCallRecord[]): Promise<readonly undefined[]> {
    await this.#options.database.queryPrepared('record_tool_calls', recordToolCalls, [
      partition,
      plainArray(calls.map((call) => call.requestId)),
      plainArray(calls.map((call) => call.number)),
      plainArray(calls.map((call) => call.kind)),
      plainArray(calls.map((call) => call.status)),
      plainArray(calls.map((call) => call.cost)),
      plainArray(calls.map((call) => call.results)),
    ])
    return calls.map(() => undefined)
  }

  async #checkpoint(partition: number, calls: readonly CheckpointCall[]): Promise<readonly undefined[]> {
    // The last word of a request is its furthest: one statement may not write a row twice.
    const latest = [...new Map(calls.map((call) => [call.requestId, call])).values()]
    await this.#options.database.queryPrepared('checkpoint_requests', 'select checkpoint_requests($1, $2, $3, $4)', [
      partition,
      plainArray(latest.map((call) => call.requestId)),
      plainArray(latest.map((call) => call.promptTokens)),
      plainArray(latest.map((call) => call.completionTokens)),
    ])
    this.#options.failpoint('after_checkpoint')
    return calls.map(() => undefined)
  }

  async #refuse(
    connection: Connection,
    partition: number,
    calls: readonly RefusalCall[],
  ): Promise<readonly undefined[]> {
    await connection.queryPrepared('record_refusals', recordRefusals, [
      partition,
      this.#options.node,
      plainArray(calls.map((call) => call.requestId)),
      plainArray(calls.map((call) => call.payer.accountId)),
      plainArray(calls.map((call) => call.payer.keyId)),
      textArray(calls.map((call) => call.model ?? null)),
      plainArray(calls.map((call) => call.stream)),
      plainArray(calls.map((call) => call.maxTokens ?? null)),
      plainArray(calls.map((call) => call.errorCode)),
    ])
    return calls.map(() => undefined)
  }
}

// Two that waited for each other, or for a lock.
const collisionStates = /^(40|55)/

/**
 * A full disk or memory says for certain that nothing was held, and may last: who asks is told at once to come back. All else
 * that a request does to the ledger is repeated until it is done, for then its money is at stake.
 */
function isHoldRepeated(error: unknown): boolean {
  return isConnectionLost(error) || collisionStates.test(String((error as { code?: unknown } | null)?.code ?? ''))
}

/** An account stayed locked for longer than a batch waits for it. */
function isLockTimeout(error: unknown): boolean {
  return (error as { code?: unknown } | null)?.code === '55P03'
}

type RunCalls<Call, Result> = (
  connection: Connection,
  partition: number,
  calls: readonly Call[],
) => Promise<readonly Result[]>

/** Holds, extensions or refusals that wait for one locked account. */
const lockedCallsMax = 512

function isDeadLease(error: unknown): boolean {
  return (error as { code?: unknown } | null)?.code === 'P0L01'
}

/** The end of a hold that nobody was waiting for any more. */
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

// In the order of their ids, as every function locks them. The function that follows in the same transaction does not wait.
const lockUnlocked = `
  select a.id from accounts a where a.partition = $1 and a.id = any ($2::uuid[])
   order by a.id for no key update skip locked`

const placeHolds = `
  select row_number, decision, authorized, from_credit, nonce, created_at, spendable, in_flight, limit_left
    from place_holds($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`

const endRequests = `
  select id, ended_now, status, charged
    from end_requests($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)`

const extendHolds = 'select row_number, decision from extend_holds($1, $2, $3, $4, $5, $6, $7, $8, $9)'

const recordToolCalls = 'select record_tool_calls($1, $2, $3, $4, $5, $6, $7)'

const recordRefusals = 'select record_refusals($1, $2, $3, $4, $5, $6, $7, $8, $9)'

type PlacedRow = {
  readonly row_number: number
  readonly decision: string
  readonly authorized: bigint
  readonly from_credit: bigint
  readonly nonce: bigint | null
  readonly created_at: Date
  readonly spendable: bigint | null
  readonly in_flight: bigint | null
  readonly limit_left: bigint | null
}

type ExtendedRow = { readonly row_number: number; readonly decision: ExtensionDecision }

type EndedRow = {
  readonly id: string
  readonly ended_now: boolean
  readonly status: string
  readonly charged: bigint
}

const endedStatuses = new Set(['succeeded', 'failed', 'cancelled', 'refused'])

function readDecision(call: HoldCall, row: PlacedRow): HoldDecision | 'ended' {
  // The reply to the first call was lost, and before this one came another node took the request for an orphan.
  if (endedStatuses.has(row.decision)) return 'ended'
  if (row.decision === 'held') {
    return {
      hold: {
        ...call,
        fromCredit: fromAtomic(row.from_credit),
        authorized: fromAtomic(row.authorized),
        nonce: row.nonce ?? undefined,
        createdAt: row.created_at,
      },
    }
  }
  return {
    refusal: {
      code: row.decision as HoldRefusalCode,
      spendable: row.spendable === null ? zero : fromAtomic(row.spendable),
      inFlight: row.in_flight === null ? zero : fromAtomic(row.in_flight),
      limitLeft: row.limit_left === null ? undefined : fromAtomic(row.limit_left),
    },
  }
}

/** Every row that a batch locks belongs to an account. An account keeps to its lane, so batches of different lanes never meet. */
function laneOf({ payer: { accountId } }: { readonly payer: Payer }): number {
  return accountId.charCodeAt(accountId.length - 1) & 1
}

/** Distinct values and, for each use, its position among them (from 1, as PostgreSQL counts). */
class Positions {
  readonly values: string[] = []
  readonly #positions = new Map<string, number>()

  of(value: string): number {
    const known = this.#positions.get(value)
    if (known !== undefined) return known
    const position = this.values.push(value)
    this.#positions.set(value, position)
    return position
  }
}

/** The database does not answer, or no longer takes this node for alive. */
export class LedgerUnavailableError extends ServiceError {
  readonly code = 'overloaded'
  constructor(cause?: unknown) {
    super(
      'The ledger does not answer at the moment. What becomes of this request will be in the request log; try again shortly.',
      {
        retryAfterMs: 2000,
        cause,
      },
    )
  }
}

/** A programming error: only requests that were held can end. */
class RequestNotHeldError extends Error {
  constructor(requestId: string) {
    super(`request ${requestId} was never held`)
    this.name = 'RequestNotHeldError'
  }
}
