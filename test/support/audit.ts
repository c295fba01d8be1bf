import assert from 'node:assert/strict'
import type { Database } from '../../src/db/database.ts'
import { findViolations } from '../../src/ledger/audit.ts'

/** Every numbered invariant of the ledger holds, on every account, to the atomic unit. */
export async function assertBooksBalance(database: Database): Promise<void> {
  assert.deepEqual(await findViolations(database), [])
}

/** And nothing is held any more: every request has ended. */
export async function assertBooksClosed(...databases: readonly Database[]): Promise<void> {
  for (const database of databases) {
    await assertBooksBalance(database)
    assert.deepEqual(await database.query('select id from holds'), [])
  }
}
