import type { Database } from '../db/database.ts'

/** How the reason begins when a copy was restored: what happened after the copy is on the chain alone. */
export const restoredReason = 'restored from a copy'

/** Stops new holds until somebody has looked: stopping is better than going on wrong. The first reason is kept. */
export async function freezeLedger(database: Database, reason: string): Promise<void> {
  await database.query(
    'update ledger_state set frozen_at = coalesce(frozen_at, clock_timestamp()), reason = coalesce(reason, $1)',
    [reason],
  )
}

export async function unfreezeLedger(database: Database): Promise<void> {
  await database.query('update ledger_state set frozen_at = null, reason = null')
}

/** Why the books are frozen; undefined when they are not. */
export async function findFreeze(database: Database): Promise<string | undefined> {
  const [row] = await database.query<{ reason: string | null }>(
    'select reason from ledger_state where frozen_at is not null',
  )
  return row === undefined ? undefined : (row.reason ?? 'frozen')
}
