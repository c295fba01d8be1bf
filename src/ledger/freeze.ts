import { readClock } from '../db/clock.ts'
import type { Database } from '../db/database.ts'

/** The prefix of the reason after a restore: events after the backup are only on chain. */
export const restoredReason = 'restored from a copy'

/**
 * Refuses new holds until an operator has looked: stopping is safer than continuing with wrong balances. Keeps the first reason.
 */
export async function freezeLedger(database: Database, reason: string): Promise<void> {
  await database.query('update ledger_state set frozen_at = coalesce(frozen_at, $2), reason = coalesce(reason, $1)', [
    reason,
    await readClock(database),
  ])
}

export async function unfreezeLedger(database: Database): Promise<void> {
  await database.query('update ledger_state set frozen_at = null, reason = null')
}

/** Why the ledger is frozen; undefined when it is not. */
export async function findFreeze(database: Database): Promise<string | undefined> {
  const [row] = await database.query<{ reason: string | null }>(
    'select reason from ledger_state where frozen_at is not null',
  )
  return row === undefined ? undefined : (row.reason ?? 'frozen')
}
