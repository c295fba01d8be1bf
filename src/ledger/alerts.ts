import type { AccountRef } from '../db/account-ref.ts'
import type { Database } from '../db/database.ts'
import { fromAtomic, type Usdc } from '../money/usdc.ts'

/** Thresholds for low-balance warnings; undefined turns one off. */
export type Alerts = {
  readonly balanceBelow: Usdc | undefined
  /** Days that the balance lasts at the spending rate of the last week. */
  readonly daysBelow: number | undefined
}

/** For accounts that never set any. */
export const alertsDefault: Alerts = { balanceBelow: undefined, daysBelow: 3 }
export const alertDaysMax = 365

/** A missing field stays as it is; `null` turns a warning off. */
export type AlertChanges = {
  readonly balanceBelow?: Usdc | null | undefined
  readonly daysBelow?: number | null | undefined
}

export async function readAlerts(database: Database, { partition, accountId }: AccountRef): Promise<Alerts> {
  const [row] = await database.query<{ balance_below: bigint | null; days_below: number | null }>(
    'select balance_below, days_below from account_alerts where partition = $1 and account_id = $2',
    [partition, accountId],
  )
  if (row === undefined) return alertsDefault
  return {
    balanceBelow: row.balance_below === null ? undefined : fromAtomic(row.balance_below),
    daysBelow: row.days_below ?? undefined,
  }
}

export async function changeAlerts(
  database: Database,
  { partition, accountId }: AccountRef,
  { balanceBelow, daysBelow }: AlertChanges,
): Promise<void> {
  await database.query(
    `insert into account_alerts as a (partition, account_id, balance_below, days_below)
     values ($1, $2, $3, case when $4 then $5::smallint else ${alertsDefault.daysBelow} end)
     on conflict (partition, account_id) do update
        set balance_below = case when $6 then excluded.balance_below else a.balance_below end,
            days_below = case when $4 then excluded.days_below else a.days_below end`,
    [
      partition,
      accountId,
      balanceBelow ?? null,
      daysBelow !== undefined,
      daysBelow ?? null,
      balanceBelow !== undefined,
    ],
  )
}
