import { plainArray } from '../db/array-literal.ts'
import { composite } from '../db/composite.ts'
import type { Connection } from '../db/database.ts'
import { rowOf, rowsOf } from '../db/rows.ts'
import { type Usdc, zero } from '../money/usdc.ts'
import type { Failpoint } from '../process/failpoints.ts'
import type {
  CheckpointCall,
  End,
  ExtensionCall,
  ExtensionDecision,
  Hold,
  HoldCall,
  HoldDecision,
  HoldRefusal,
  HoldRefusalCode,
  PaidHoldCall,
  RefusalCall,
  ToolCallRecord,
} from './hold-calls.ts'
import type { WholeEnd } from './node-requests.ts'
import { readLeaseEnd } from './nodes.ts'
import type { BatchPartition } from './partition-queues.ts'
import { endedStatuses } from './states.ts'

type StatementOptions = {
  readonly node: string
  readonly priceVersion: string
  readonly inFlightCap: Usdc
  readonly failpoint: Failpoint
  readonly leaseReadMs: number
}

/** The outcome of a call: decided, ended elsewhere, or to be checked again under changed key options. */
export type PlacedCall = HoldDecision | 'ended' | 'key_changed'

/** Calls the database's functions that move a request's money. Each takes a batch, and returns the results in the order of the calls. */
export class HoldStatements {
  readonly #options: StatementOptions
  #lease: { readonly until: Date; readonly readMs: number } | undefined

  constructor(options: StatementOptions) {
    this.#options = options
  }

  /** Drops the cached end of the lease: the ledger reports that the lease has ended. */
  forgetLease(): void {
    this.#lease = undefined
  }

  async place(
    connection: Connection,
    partition: BatchPartition,
    calls: readonly HoldCall[],
  ): Promise<readonly PlacedCall[]> {
    const accounts = new Positions()
    const keys = new Positions()
    const placed = calls.map((call) => ({
      call,
      accountOf: accounts.of(call.payer.accountId),
      keyOf: keys.of(call.payer.keyId),
    }))
    const { node, priceVersion, inFlightCap, failpoint } = this.#options
    failpoint('before_hold_commit')
    const rows = await rowsOf<PlacedRow>(
      connection.queryPrepared('place_holds', placeHolds, [
        partition,
        node,
        await this.#leaseEnd(connection),
        priceVersion,
        inFlightCap,
        plainArray(accounts.values),
        plainArray(keys.values),
        holdCall.array(placed),
      ]),
    )
    failpoint('after_hold_commit')
    const decisions: PlacedCall[] = []
    for (const row of rows) {
      const index = Number(row.place) - 1
      decisions[index] = readDecision(calls[index]!, row)
    }
    return decisions
  }

  async payAndPlace(connection: Connection, call: PaidHoldCall): Promise<PlacedCall | 'used'> {
    const { node, priceVersion, inFlightCap, failpoint } = this.#options
    failpoint('before_x402_commit')
    const row = await rowOf<PlacedRow>(
      connection.queryPrepared('pay_and_hold', payAndHold, [
        call.payer.partition,
        node,
        await this.#leaseEnd(connection),
        priceVersion,
        inFlightCap,
        paymentCall.row(call),
        holdCall.row({ call, accountOf: 1, keyOf: 1 }),
      ]),
    )
    failpoint('after_x402_commit')
    return row === undefined ? 'used' : readDecision(call, row)
  }

  async end(connection: Connection, partition: BatchPartition, calls: readonly WholeEnd[]): Promise<readonly End[]> {
    const { failpoint } = this.#options
    failpoint('before_end_commit')
    const rows = await rowsOf<EndedRow>(
      connection.queryPrepared('end_requests', endRequests, [
        partition,
        plainArray([...new Set(calls.map((call) => call.payer.accountId))]),
        endCall.array(calls),
      ]),
    )
    failpoint('after_end_commit')
    const byId = new Map(rows.map((row) => [row.id, row]))
    return calls.map((call) => {
      const row = byId.get(call.requestId)
      if (row === undefined) return { endedNow: false, status: 'lost', charged: zero }
      const { endedNow, status, charged } = row
      return { endedNow, status, charged }
    })
  }

  async extend(
    connection: Connection,
    partition: BatchPartition,
    calls: readonly ExtensionCall[],
  ): Promise<readonly ExtensionDecision[]> {
    const accounts = new Positions()
    const keys = new Positions()
    const extended = calls.map((call) => ({
      call,
      accountOf: accounts.of(call.payer.accountId),
      keyOf: keys.of(call.payer.keyId),
    }))
    const { node, inFlightCap } = this.#options
    const rows = await rowsOf<ExtendedRow>(
      connection.queryPrepared('extend_holds', extendHolds, [
        partition,
        node,
        await this.#leaseEnd(connection),
        inFlightCap,
        plainArray(accounts.values),
        plainArray(keys.values),
        extensionCall.array(extended),
      ]),
    )
    const decisions: ExtensionDecision[] = []
    for (const row of rows) decisions[Number(row.place) - 1] = row.decision
    return decisions
  }

  async recordToolCalls(
    connection: Connection,
    partition: BatchPartition,
    calls: readonly ToolCallRecord[],
  ): Promise<readonly undefined[]> {
    await connection.queryPrepared('record_tool_calls', recordToolCalls, [partition, toolCall.array(calls)])
    return calls.map(() => undefined)
  }

  async checkpoint(
    connection: Connection,
    partition: BatchPartition,
    calls: readonly CheckpointCall[],
  ): Promise<readonly undefined[]> {
    // Keep the latest checkpoint of each request: one statement may not write a row twice.
    const latest = [...new Map(calls.map((call) => [call.requestId, call])).values()]
    await connection.queryPrepared('checkpoint_holds', 'select checkpoint_holds($1, $2)', [
      partition,
      checkpointCall.array(latest),
    ])
    this.#options.failpoint('after_checkpoint')
    return calls.map(() => undefined)
  }

  async refuse(
    connection: Connection,
    partition: BatchPartition,
    calls: readonly RefusalCall[],
  ): Promise<readonly undefined[]> {
    await connection.queryPrepared('record_refusals', recordRefusals, [
      partition,
      this.#options.node,
      plainArray([...new Set(calls.map(({ payer }) => payer.accountId))]),
      refusalCall.array(calls),
    ])
    return calls.map(() => undefined)
  }

  /** When this node's lease ends: a later hold is refused. Read once a second, because the lease of a living node is never shortened. */
  async #leaseEnd(connection: Connection): Promise<Date | null> {
    const nowMs = performance.now()
    if (this.#lease === undefined || nowMs - this.#lease.readMs >= this.#options.leaseReadMs) {
      const until = await readLeaseEnd(connection, this.#options.node)
      if (until === undefined) return null
      this.#lease = { until, readMs: nowMs }
    }
    return this.#lease.until
  }
}

const placeHolds = `
  select place, decision, authorized, from_credit, created_at, spendable, in_flight, limit_left
    from place_holds($1, $2, $3, $4, $5, $6, $7, $8)`

const payAndHold = `
  select place, decision, authorized, from_credit, created_at, spendable, in_flight, limit_left
    from pay_and_hold($1, $2, $3, $4, $5, $6, $7)`

const endRequests = 'select id, ended_now, status, charged from end_requests($1, $2, $3)'

const extendHolds = 'select place, decision from extend_holds($1, $2, $3, $4, $5, $6, $7)'

const recordToolCalls = 'select record_tool_calls($1, $2)'

const recordRefusals = 'select record_refusals($1, $2, $3, $4)'

/** A call, and the positions of its account and key in the arrays of the batch. */
type Placed<Call> = { readonly call: Call; readonly accountOf: number; readonly keyOf: number }

const holdCall = composite<Placed<HoldCall>>('hold_call', {
  id: ({ call }) => call.requestId,
  account_of: ({ accountOf }) => accountOf,
  key_of: ({ keyOf }) => keyOf,
  quote: ({ call }) => call.quote,
  model: ({ call }) => call.model,
  stream: ({ call }) => call.stream,
  max_tokens: ({ call }) => call.maxTokens,
  body_hash: ({ call }) => call.bodyHash,
  options_version: ({ call }) => call.optionsVersion,
})

const paymentCall = composite<PaidHoldCall>('x402_payment_call', {
  payer: ({ payment }) => payment.payer,
  nonce: ({ payment }) => payment.nonce,
  account_id: ({ payer }) => payer.accountId,
  key_id: ({ payer }) => payer.keyId,
  deposit_id: ({ payment }) => payment.depositId,
  gateway_id: ({ payment }) => payment.gatewayId,
})

const extensionCall = composite<Placed<ExtensionCall>>('extension_call', {
  id: ({ call }) => call.requestId,
  account_of: ({ accountOf }) => accountOf,
  key_of: ({ keyOf }) => keyOf,
  total: ({ call }) => call.total,
})

const endCall = composite<WholeEnd>('end_call', {
  id: (call) => call.requestId,
  status: (call) => call.status,
  voided: (call) => call.voided,
  charged: (call) => call.charged,
  search_cost: (call) => call.searchCost,
  search_calls: (call) => call.searchCalls,
  fetch_calls: (call) => call.fetchCalls,
  prompt_tokens: (call) => call.usage?.promptTokens,
  completion_tokens: (call) => call.usage?.completionTokens,
  reasoning_tokens: (call) => call.usage?.reasoningTokens,
  cached_tokens: (call) => call.usage?.cachedTokens,
  usage_source: (call) => call.usage?.source,
  finish_reason: (call) => call.finishReason,
  error_code: (call) => call.errorCode,
  first_token_ms: (call) => call.firstTokenMs,
  total_ms: (call) => call.totalMs,
  provider: (call) => call.upstream?.provider,
  attempts: (call) => call.upstream?.attempts,
  upstream_cost: (call) => call.upstream?.cost,
  tool_calls: (call) => toolCallsJson(call.toolCalls),
})

const checkpointCall = composite<CheckpointCall>('checkpoint_call', {
  id: (call) => call.requestId,
  prompt_tokens: (call) => call.promptTokens,
  completion_tokens: (call) => call.completionTokens,
})

const toolCall = composite<ToolCallRecord>('tool_call', {
  request_id: (call) => call.requestId,
  number: (call) => call.number,
  kind: (call) => call.kind,
  status: (call) => call.status,
  cost: (call) => call.cost,
  results: (call) => call.results,
})

const refusalCall = composite<RefusalCall>('refusal_call', {
  id: (call) => call.requestId,
  account_id: ({ payer }) => payer.accountId,
  key_id: ({ payer }) => payer.keyId,
  model: (call) => call.model,
  stream: (call) => call.stream,
  max_tokens: (call) => call.maxTokens,
  error_code: (call) => call.errorCode,
})

/** For the comparison with the database at the start. */
export const holdComposites = [holdCall, paymentCall, extensionCall, endCall, checkpointCall, toolCall, refusalCall]

type PlacedRow = Partial<Pick<HoldRefusal, 'spendable' | 'inFlight' | 'limitLeft'>> &
  Pick<Hold, 'authorized' | 'fromCredit' | 'createdAt'> & { readonly place: bigint; readonly decision: string }

type ExtendedRow = { readonly place: bigint; readonly decision: ExtensionDecision }

type EndedRow = End & { readonly id: string }

function readDecision(call: HoldCall, row: PlacedRow): PlacedCall {
  if (row.decision === 'key_changed') return row.decision
  // The reply to the first call was lost, and another node ended the request as an orphan before the retry.
  if (endedStatuses.some((status) => status === row.decision)) return 'ended'
  const { authorized, fromCredit, createdAt, spendable = zero, inFlight = zero, limitLeft } = row
  if (row.decision === 'held') return { hold: { ...call, fromCredit, authorized, createdAt } }
  return { refusal: { code: row.decision as HoldRefusalCode, spendable, inFlight, limitLeft } }
}

/** Tool calls in the form that `record_tool_calls` stores. Undefined when there were none, as for most requests. */
function toolCallsJson(calls: readonly ToolCallRecord[]): string | undefined {
  if (calls.length === 0) return undefined
  const stored = calls.map(({ number, kind, status, cost, results }) => [
    number,
    { kind, status, cost: Number(cost), results },
  ])
  return JSON.stringify(Object.fromEntries(stored))
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
