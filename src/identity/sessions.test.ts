import assert from 'node:assert/strict'
import { test } from 'node:test'
import { openPayer } from '../../test/support/ledger.ts'
import { entryOf } from '../../test/support/people.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import { findSession, openSession } from './sessions.ts'

const ledger = ledgerSuite()

for (const [title, change] of [
  ['twelve hours after signing in', "expires_at = clock_timestamp() - interval '1 second'"],
  ['after half an hour without use', "last_used_at = clock_timestamp() - interval '31 minutes'"],
] as const) {
  test(`a session ends ${title}`, async () => {
    const { database } = ledger
    const payer = await openPayer(database, 0n)
    const { token, session } = await openSession(database, await entryOf(database, payer), 'passkey', undefined)
    assert.equal((await findSession(database, token))?.id, session.id)
    await database.query(`update sessions set ${change} where id = $1`, [session.id])
    assert.equal(await findSession(database, token), undefined)
  })
}
