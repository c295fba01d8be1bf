import { plainArray, rowArray, rowLiteral } from '../db/array-literal.ts'
import type { Connection } from '../db/database.ts'
import { fromAtomic, type Usdc, zero } from '../money/usdc.ts'
import type { Failpoint } from '../process/failpoints.ts'
import type {
  CheckpointCall,
  End,
  ExtensionCall,
  ExtensionDecision,
  HoldCall,
  HoldDecision,
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
    const accountOf = calls.map((call) => accounts.of(call.payer.accountId))
    const keyOf = calls.map((call) => keys.of(call.payer.keyId))
    const { node, priceVersion, inFlightCap, failpoint } = this.#options
    failpoint('before_hold_commit')
    const rows = await connection.queryPrepared<PlacedRow>('place_holds', placeHolds, [
      partition,
      node,
      await this.#leaseEnd(connection),
      priceVersion,
      inFlightCap,
      plainArray(accounts.values),
      plainArray(keys.values),
      rowArray(
        calls.map(({ requestId, quote, model, stream, maxTokens, bodyHash, optionsVersion }, index) => [
          requestId,
          accountOf[index],
          keyOf[index],
          quote,
          model,
          stream,
          maxTokens,
          bodyHash,
          optionsVersion,
        ]),
      ),
    ])
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
    const { payment, payer, requestId, quote, model, stream, maxTokens, bodyHash, optionsVersion } = call
    failpoint('before_x402_commit')
    const [row] = await connection.queryPrepared<PlacedRow>('pay_and_hold', payAndHold, [
      payer.partition,
      node,
      await this.#leaseEnd(connection),
      priceVersion,
      inFlightCap,
      rowLiteral([payment.payer, payment.nonce, payer.accountId, payer.keyId, payment.depositId, payment.gatewayId]),
      rowLiteral([requestId, 1, 1, quote, model, stream, maxTokens, bodyHash, optionsVersion]),
    ])
    failpoint('after_x402_commit')
    return row === undefined ? 'used' : readDecision(call, row)
  }

  async end(connection: Connection, partition: BatchPartition, calls: readonly WholeEnd[]): Promise<readonly End[]> {
    const { failpoint } = this.#options
    failpoint('before_end_commit')
    const rows = await connection.queryPrepared<EndedRow>('end_requests', endRequests, [
      partition,
      plainArray([...new Set(calls.map((call) => call.payer.accountId))]),
      rowArray(
        calls.map((call) => [
          call.requestId,
          call.status,
          call.voided,
          call.charged,
          call.searchCost,
          call.searchCalls,
          call.fetchCalls,
          call.usage?.promptTokens,
          call.usage?.completionTokens,
          call.usage?.reasoningTokens,
          call.usage?.cachedTokens,
          call.usage?.source,
          call.finishReason,
          call.errorCode,
          call.firstTokenMs,
          call.totalMs,
          call.upstream?.provider,
          call.upstream?.attempts,
          call.upstream?.cost,
          toolCallsJson(call.toolCalls),
        ]),
      ),
    ])
    failpoint('after_end_commit')
    const byId = new Map(rows.map((row) => [row.id, row]))
    return calls.map((call) => {
      const row = byId.get(call.requestId)
      if (row === undefined) return { endedNow: false, status: 'lost', charged: zero }
      return { endedNow: row.ended_now, status: row.status, charged: fromAtomic(row.charged) }
    })
  }

  async extend(
    connection: Connection,
    partition: BatchPartition,
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
      await this.#leaseEnd(connection),
      inFlightCap,
      plainArray(accounts.values),
      plainArray(keys.values),
      rowArray(calls.map(({ requestId, total }, index) => [requestId, accountOf[index], keyOf[index], total])),
    ])
    const decisions: ExtensionDecision[] = []
    for (const row of rows) decisions[Number(row.place) - 1] = row.decision
    return decisions
  }

  async recordToolCalls(
    connection: Connection,
    partition: BatchPartition,
    calls: readonly ToolCallRecord[],
  ): Promise<readonly undefined[]> {
    await connection.queryPrepared('record_tool_calls', recordToolCalls, [
      partition,
      rowArray(calls.map((call) => [call.requestId, call.number, call.kind, call.status, call.cost, call.results])),
    ])
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
      rowArray(latest.map((call) => [call.requestId, call.promptTokens, call.completionTokens])),
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
      rowArray(
        calls.map(({ requestId, payer, model, stream, maxTokens, errorCode }) => [
          requestId,
          payer.accountId,
          payer.keyId,
          model,
          stream,
          maxTokens,
          errorCode,
        ]),
      ),
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

type PlacedRow = {
  readonly place: bigint
  readonly decision: string
  readonly authorized: bigint
  readonly from_credit: bigint
  readonly created_at: Date
  readonly spendable: bigint | null
  readonly in_flight: bigint | null
  readonly limit_left: bigint | null
}

type ExtendedRow = { readonly place: bigint; readonly decision: ExtensionDecision }

type EndedRow = {
  readonly id: string
  readonly ended_now: boolean
  readonly status: string
  readonly charged: bigint
}

function readDecision(call: HoldCall, row: PlacedRow): PlacedCall {
  if (row.decision === 'key_changed') return row.decision
  // The reply to the first call was lost, and another node ended the request as an orphan before the retry.
  if (endedStatuses.some((status) => status === row.decision)) return 'ended'
  if (row.decision === 'held') {
    return {
      hold: {
        ...call,
        fromCredit: fromAtomic(row.from_credit),
        authorized: fromAtomic(row.authorized),
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
