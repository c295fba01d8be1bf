import assert from 'node:assert/strict'
import type { Database } from '../../src/db/database.ts'
import { findViolations } from '../../src/ledger/audit.ts'

/** Every numbered invariant of the ledger holds, on every account, to the atomic unit. */
export async function assertBooksBalance(database: Database): Promise<void> {
  assert.deepEqual(await findViolations(database), [])
}

/** Nothing is held any more. */
export async function assertNothingHeld(database: Database): Promise<void> {
  const open = await database.query("select id from requests where status = 'held'")
  assert.deepEqual(open, [])
}
