import type { AccountRef } from '../account-ref.ts'
import type { Database } from '../db/database.ts'
import { fromAtomic, type Usdc } from '../money/usdc.ts'

/** What decides whether an account can pay for anything. A look, not a promise: only a hold reserves money. */
export type Standing = {
  readonly available: Usdc
  readonly held: Usdc
  readonly extended: Usdc
  readonly suspended: boolean
  readonly settlementDelayed: boolean
  readonly frozen: boolean
}

/** One row by its key: cheap enough to come before work that nobody has paid for. */
export async function readStanding(database: Database, { partition, accountId }: AccountRef): Promise<Standing> {
  const [row] = await database.queryPrepared<StandingRow>(
    'read_standing',
    `select a.gateway + a.credit - a.extended as available, a.held, a.extended,
            a.suspended_at is not null as suspended, a.unsettled > l.unsettled_cap as settlement_delayed,
            l.frozen_at is not null as frozen
       from accounts a cross join ledger_state l where a.partition = $1 and a.id = $2`,
    [partition, accountId],
  )
  return {
    available: fromAtomic(row!.available),
    held: fromAtomic(row!.held),
    extended: fromAtomic(row!.extended),
    suspended: row!.suspended,
    settlementDelayed: row!.settlement_delayed,
    frozen: row!.frozen,
  }
}

type StandingRow = {
  readonly available: bigint
  readonly held: bigint
  readonly extended: bigint
  readonly suspended: boolean
  readonly settlement_delayed: boolean
  readonly frozen: boolean
}
