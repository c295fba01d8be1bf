import type { Model, PriceList } from '../billing/price-list.ts'
import { inputLine, outputLine, quote } from '../billing/quote.ts'
import type { Database } from '../db/database.ts'
import type { ErrorCode } from '../errors.ts'
import type { EndCall, Hold, Payer } from '../ledger/hold-calls.ts'
import type { Holds } from '../ledger/holds.ts'
import { renewLease } from '../ledger/nodes.ts'
import { createRequestId } from '../ledger/request-id.ts'
import { cost } from '../money/price.ts'
import { fromAtomic, zero } from '../money/usdc.ts'
import type { PlannedRequest } from './replay-plan.ts'

export type ReplayerParts = {
  /** Must have one connection only: the clock is a setting of its session. */
  readonly database: Database
  readonly holds: Holds
  readonly node: string
  readonly prices: PriceList
  readonly payers: readonly Payer[]
}

const leaseMs = 60_000
const renewMs = 15_000
/** Ratio of the quoted input bound to the charged input. */
const inputBoundFactor = 1.5

/**
 * Runs requests through the ledger at past times. The ledger's functions call `clock_timestamp()`. Only in this session, the search path
 * finds our own function of that name before PostgreSQL's, so neither the ledger's functions nor other sessions change.
 */
export class Replayer {
  readonly #parts: ReplayerParts
  readonly counts = { requests: 0, refused: 0, cancelled: 0, failed: 0 }
  #renewedMs = Number.NEGATIVE_INFINITY

  constructor(parts: ReplayerParts) {
    this.#parts = parts
  }

  async start(): Promise<void> {
    await this.#parts.database.execute(`
      create schema if not exists penny_replay;
      create or replace function penny_replay.clock_timestamp() returns timestamptz language sql volatile
        as $$ select current_setting('penny_replay.now')::timestamptz $$`)
  }

  async stop(): Promise<void> {
    await this.#parts.database.execute('reset search_path; drop schema if exists penny_replay cascade')
  }

  async run(planned: PlannedRequest): Promise<void> {
    await this.#keepLease()
    await this.#setClock(planned.atMs)
    this.counts.requests += 1
    const { holds, prices, payers } = this.#parts
    const payer = payers[planned.key]!
    const requestId = createRequestId(payer.partition, planned.atMs)
    const model = prices.models.get(planned.model)
    if (planned.outcome === 'unknown_model' || model === undefined)
      return this.#refuse({ ...planned, model: 'gpt-4o' }, payer, requestId, 'model_not_found')
    const { amount } = quote(model, Math.round(planned.promptTokens * inputBoundFactor) + 400, planned.maxTokens)
    const { stream, maxTokens } = planned
    const decision = await holds.place({ requestId, payer, quote: amount, model: model.id, stream, maxTokens })
    if ('refusal' in decision) return this.#refuse(planned, payer, requestId, decision.refusal.code)
    const searches = await this.#search(decision.hold, planned)
    await this.#setClock(planned.atMs + planned.totalMs)
    await holds.end(this.#endOf(decision.hold, planned, model, searches))
  }

  async #search({ requestId, payer }: Hold, { searches, outcome }: PlannedRequest): Promise<number> {
    if (searches === 0 || outcome !== 'succeeded') return 0
    const { holds, prices } = this.#parts
    const total = fromAtomic(BigInt(searches) * prices.searchPerCall)
    if ((await holds.extend({ requestId, payer, total })) !== 'extended') return 0
    for (let number = 1; number <= searches; number += 1) {
      const call = { requestId, partition: payer.partition, number, kind: 'search', status: 'completed' } as const
      holds.recordToolCall({ ...call, cost: fromAtomic(prices.searchPerCall), results: 5 })
    }
    return searches
  }

  #endOf({ requestId, payer }: Hold, planned: PlannedRequest, model: Model, searches: number): EndCall {
    const { outcome, promptTokens, firstTokenMs, totalMs } = planned
    const base = { requestId, payer, fetchCalls: 0, totalMs }
    if (outcome === 'failed') {
      this.counts.failed += 1
      const free = { charged: zero, searchCost: zero, searchCalls: 0, usage: undefined, finishReason: undefined }
      return { ...base, ...free, status: 'failed', voided: true, errorCode: 'upstream_error', firstTokenMs: undefined }
    }
    const isCancelled = outcome === 'cancelled'
    if (isCancelled) this.counts.cancelled += 1
    const completionTokens = isCancelled ? Math.ceil(planned.completionTokens / 3) : planned.completionTokens
    const searchCost = fromAtomic(BigInt(searches) * this.#parts.prices.searchPerCall)
    const inference = cost([inputLine(model, promptTokens), outputLine(model, completionTokens)])
    return {
      ...base,
      status: isCancelled ? 'cancelled' : 'succeeded',
      voided: false,
      charged: fromAtomic(inference + searchCost),
      searchCost,
      searchCalls: searches,
      usage: {
        promptTokens,
        completionTokens,
        reasoningTokens: Math.floor(completionTokens / 5),
        cachedTokens: Math.floor(promptTokens / 4),
        source: isCancelled ? 'counted' : 'upstream',
      },
      finishReason: isCancelled ? undefined : 'stop',
      errorCode: undefined,
      firstTokenMs,
    }
  }

  async #refuse(
    { model, stream, maxTokens }: Pick<PlannedRequest, 'model' | 'stream' | 'maxTokens'>,
    payer: Payer,
    requestId: ReturnType<typeof createRequestId>,
    errorCode: ErrorCode,
  ): Promise<void> {
    this.counts.refused += 1
    this.#parts.holds.refuse({ requestId, payer, model, stream, maxTokens, errorCode })
    await this.#parts.holds.drained()
  }

  async #setClock(atMs: number): Promise<void> {
    await this.#parts.database.query(
      `select set_config('search_path', 'penny_replay, public, pg_catalog', false), set_config('penny_replay.now', $1, false)`,
      [new Date(atMs).toISOString()],
    )
  }

  /** Uses the real clock: if this process dies, the service ends its open requests within a minute. */
  async #keepLease(): Promise<void> {
    if (performance.now() < this.#renewedMs + renewMs) return
    await this.#parts.database.execute('reset search_path')
    await renewLease(this.#parts.database, this.#parts.node, leaseMs)
    this.#renewedMs = performance.now()
  }
}
