import type { Database } from '../db/database.ts'
import { rowOf, rowsOf } from '../db/rows.ts'
import type { Usdc } from '../money/usdc.ts'

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
  const [rows, adjusted] = await Promise.all([
    rowsOf<RevenueRow>(
      database.query(
        `select model, provider, sum(succeeded + failed + cancelled)::float8 as requests, sum(charged)::bigint as charged,
              sum(search_cost)::bigint as search, sum(search_calls)::float8 as searches, sum(attempts)::float8 as attempts,
              sum(upstream_cost)::bigint as upstream_cost, sum(costed)::bigint as costed
         from usage_hours where hour >= $1 and hour < $2
        group by model, provider having sum(succeeded + failed + cancelled) > 0 or sum(charged) <> 0
        order by sum(charged) desc, model, provider`,
        [day, end],
      ),
    ),
    rowOf<{ readonly givenBack: Usdc }>(
      database.query(
        'select coalesce(sum(amount), 0)::bigint as given_back from adjustments where created_at >= $1 and created_at < $2',
        [day, end],
      ),
    ),
  ])
  return { day, rows, givenBack: adjusted!.givenBack }
}
