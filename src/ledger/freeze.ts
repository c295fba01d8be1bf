import { hasCitus } from '../db/citus.ts'
import { readClock } from '../db/clock.ts'
import type { Database } from '../db/database.ts'

/** The prefix of the reason after a restore: events after the backup are only on chain. */
export const restoredReason = 'restored from a copy'

/**
 * Refuses new holds until an operator has looked: stopping is safer than continuing with wrong balances. Keeps the first reason.
 *
 * On a cluster every worker has a copy of `ledger_state`, which can be written only while all are up. When one is down, the freeze is
 * written on the coordinator, and holds stop once each node has read its lease again (`readLeaseEnd`), within a second.
 */
export async function freezeLedger(database: Database, reason: string): Promise<void> {
  const now = await readClock(database)
  try {
    await writeFreeze(database, now, reason)
  } catch (error) {
    if (!(await hasCitus(database))) throw error
    await database.query('insert into emergency_freeze (frozen_at, reason) values ($1, $2) on conflict do nothing', [
      now,
      reason,
    ])
  }
}

/** Moves an emergency freeze to where all functions read it, once all workers are up. The auditor calls it. */
export async function completeFreeze(database: Database): Promise<void> {
  const [row] = await database.query<{ frozen_at: Date; reason: string }>(
    'select frozen_at, reason from emergency_freeze',
  )
  if (row === undefined) return
  await writeFreeze(database, row.frozen_at, row.reason)
  await database.query('delete from emergency_freeze')
}

async function writeFreeze(database: Database, at: Date, reason: string): Promise<void> {
  await database.query('update ledger_state set frozen_at = coalesce(frozen_at, $2), reason = coalesce(reason, $1)', [
    reason,
    at,
  ])
}

export async function unfreezeLedger(database: Database): Promise<void> {
  // Read first: an emergency freeze can be lifted although a worker is down.
  const frozen = await database.query('select from ledger_state where frozen_at is not null')
  if (frozen.length > 0) await database.query('update ledger_state set frozen_at = null, reason = null')
  await database.query('delete from emergency_freeze')
}

/** Why the ledger is frozen; undefined when it is not. */
export async function findFreeze(database: Database): Promise<string | undefined> {
  const [row] = await database.query<{ reason: string | null }>(
    `select reason from ledger_state where frozen_at is not null
     union all select reason from emergency_freeze limit 1`,
  )
  return row === undefined ? undefined : (row.reason ?? 'frozen')
}
