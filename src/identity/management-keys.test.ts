import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import { openPayer } from '../../test/support/ledger.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import {
  createManagementKey,
  findManagementKeyById,
  listManagementKeys,
  revokeManagementKey,
} from './management-keys.ts'

const ledger = ledgerSuite()

// Revoked keys were kept for ever, and an account may create and revoke five a second.
test('of the revoked management keys of an account the newest 900 are kept', async () => {
  const { database } = ledger
  const [account, other] = [await openPayer(database, 0n), await openPayer(database, 0n)]
  const create = (of: typeof account) => {
    const key = { name: 'ci', scopes: ['keys:read'], expiresAt: undefined, madeBy: randomUUID() } as const
    return database.transaction((connection) => createManagementKey(connection, of, key))
  }
  const ofOther = await create(other)
  await revokeManagementKey(database, ofOther.id)
  const active = await create(account)
  await database.query(
    `insert into management_keys (id, hash, partition, account_id, name, hint, scopes, made_by, known_to, revoked_at)
     select gen_random_uuid(), sha256(n::text::bytea), partition, account_id, 'revoked ' || n, hint, scopes, made_by, known_to,
            now() - n * interval '1 second' from management_keys, generate_series(1, 950) n where id = $1`,
    [active.id],
  )
  const latest = await create(account)
  const keys = await listManagementKeys(database, account)
  const revoked = keys.filter(({ revokedAt }) => revokedAt !== undefined).map(({ name }) => name)
  assert.deepEqual(new Set(revoked), new Set(Array.from({ length: 900 }, (_, index) => `revoked ${index + 1}`)))
  assert.equal(keys.length, 902)
  assert.ok([active.id, latest.id].every((id) => keys.some((key) => key.id === id)))
  assert.notEqual(await findManagementKeyById(database, other, ofOther.id), undefined)
})
