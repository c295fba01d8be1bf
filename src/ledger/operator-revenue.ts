import type { Database } from '../db/database.ts'
import { fromAtomic, type Usdc } from '../money/usdc.ts'

/** The charges of all accounts on one day (UTC), for one model and provider. */
export type RevenueRow = {
  readonly model: string
  /** The provider of the last attempt; empty when there was none. */
  readonly provider: string
  readonly requests: number
  readonly charged: Usdc
  /** The part of the charges for web searches. */
  readonly search: Usdc
  readonly searches: number
  /** Requests sent to providers. */
  readonly attempts: number
  /** The providers' charges, for requests whose cost is known. */
  readonly upstreamCost: Usdc
  /** Our charges for those same requests, without searches. */
  readonly costed: Usdc
}

export type RevenueDay = {
  readonly day: Date
  readonly rows: readonly RevenueRow[]
  /** Refunds made on that day, whenever the charge was. Above 0 is money to customers. */
  readonly givenBack: Usdc
}

export async function readRevenueDay(database: Database, day: Date): Promise<RevenueDay> {
  const end = new Date(day.getTime() + 86_400_000)
  const [rows, [adjusted]] = await Promise.all([
    database.query<RevenueSums>(
      `select model, provider, sum(succeeded + failed + cancelled)::bigint as requests, sum(charged)::bigint as charged,
              sum(search_cost)::bigint as search, sum(search_calls)::bigint as searches, sum(attempts)::bigint as attempts,
              sum(upstream_cost)::bigint as upstream_cost, sum(costed)::bigint as costed
         from usage_hours where hour >= $1 and hour < $2
        group by model, provider having sum(succeeded + failed + cancelled) > 0 or sum(charged) <> 0
        order by sum(charged) desc, model, provider`,
      [day, end],
    ),
    database.query<{ amount: bigint }>(
      'select coalesce(sum(amount), 0)::bigint as amount from adjustments where created_at >= $1 and created_at < $2',
      [day, end],
    ),
  ])
  return { day, rows: rows.map(readRow), givenBack: fromAtomic(adjusted!.amount) }
}

type RevenueSums = {
  readonly model: string
  readonly provider: string
  readonly requests: bigint
  readonly charged: bigint
  readonly search: bigint
  readonly searches: bigint
  readonly attempts: bigint
  readonly upstream_cost: bigint
  readonly costed: bigint
}

function readRow(row: RevenueSums): RevenueRow {
  return {
    model: row.model,
    provider: row.provider,
    requests: Number(row.requests),
    charged: fromAtomic(row.charged),
    search: fromAtomic(row.search),
    searches: Number(row.searches),
    attempts: Number(row.attempts),
    upstreamCost: fromAtomic(row.upstream_cost),
    costed: fromAtomic(row.costed),
  }
}
