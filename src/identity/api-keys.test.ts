import assert from 'node:assert/strict'
import { test } from 'node:test'
import { assertBooksBalance } from '../../test/support/audit.ts'
import { charge, codeOf, hold, openLedger, openPayer, place, voided } from '../../test/support/ledger.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import { fromAtomic, parse } from '../money/usdc.ts'
import { createKey, KeyFinder, listKeys, revokeKey, updateKey } from './api-keys.ts'

const ledger = ledgerSuite()

test('the database can give no key back: it has a hash and a hint', async () => {
  const payer = await openPayer(ledger.database, 0n)
  const { secret, id } = await createKey(ledger.database, {
    partition: payer.partition,
    accountId: payer.accountId,
    name: 'x',
  })
  const dump = await ledger.database.query(
    'select to_jsonb(k) as key, to_jsonb(h) as hash from api_keys k join api_key_hashes h on h.key_id = k.id where k.id = $1',
    [id],
  )
  assert.ok(!JSON.stringify(dump).includes(secret.slice(6)))
  const bearer = await new KeyFinder({ database: ledger.database, now: () => 0 }).find(secret)
  const { partition, accountId } = payer
  assert.deepEqual(bearer, { partition, accountId, keyId: id, depositAddress: undefined })
})

test('raising and lowering a limit act on the next request, and a limit below what is held leaves it alone', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 100_000n, { limit: fromAtomic(1_000n) })
  assert.equal(codeOf(await place(holds, payer, 1_001n)), 'key_limit_exceeded')
  await updateKey(ledger.database, payer.keyId, { limit: fromAtomic(5_000n) })
  const placed = await hold(holds, payer, 4_000n)
  await updateKey(ledger.database, payer.keyId, { limit: fromAtomic(100n) })
  assert.equal(codeOf(await place(holds, payer, 1n)), 'key_limit_exceeded')
  await holds.end(charge(placed, 3_000n))
  await updateKey(ledger.database, payer.keyId, { limit: null })
  await holds.end(voided(await hold(holds, payer, 50_000n)))
})

test('an expiry is an instant of the database’s clock, and can be moved and taken away', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 100_000n)
  const [{ now } = { now: new Date() }] = await ledger.database.query<{ now: Date }>('select clock_timestamp() as now')
  await updateKey(ledger.database, payer.keyId, { expiresAt: now })
  assert.equal(codeOf(await place(holds, payer, 1n)), 'api_key_expired')
  await updateKey(ledger.database, payer.keyId, { expiresAt: new Date(now.getTime() + 3_600_000) })
  await holds.end(voided(await hold(holds, payer, 1n)))
  await updateKey(ledger.database, payer.keyId, { expiresAt: null })
  await holds.end(voided(await hold(holds, payer, 1n)))
})

test('another window counts what was spent and is held in it, open requests included', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 100_000n, { limit: fromAtomic(10_000n) })
  await holds.end(charge(await hold(holds, payer, 2_000n), 1_500n))
  const open = await hold(holds, payer, 3_000n)
  for (const limitWindow of ['day', 'week', 'month', 'lifetime'] as const) {
    await updateKey(ledger.database, payer.keyId, { limitWindow })
    const [key] = (await listKeys(ledger.database, payer.accountId)).filter(({ id }) => id === payer.keyId)
    assert.deepEqual([key?.limitWindow, key?.spent, key?.held], [limitWindow, 1_500n, 3_000n])
    await assertBooksBalance(ledger.database)
  }
  await holds.end(charge(open, 2_500n))
  assert.equal(codeOf(await place(holds, payer, 6_001n)), 'key_limit_exceeded')
  await holds.end(voided(await hold(holds, payer, 6_000n)))
})

test('a limit changed while five hundred requests race is never passed', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 10_000_000n, { limit: parse('1') })
  const racing = Promise.all(Array.from({ length: 500 }, () => place(holds, payer, 1_000n)))
  await updateKey(ledger.database, payer.keyId, { limit: fromAtomic(100_000n) })
  const won = (await racing).flatMap((decision) => ('hold' in decision ? [decision.hold] : []))
  const after = await place(holds, payer, 1_000n)
  if (won.length >= 100) assert.equal(codeOf(after), 'key_limit_exceeded')
  await Promise.all([...won, ...('hold' in after ? [after.hold] : [])].map((placed) => holds.end(voided(placed))))
})

test('what does not exist can be neither changed nor revoked', async () => {
  const nobody = '00000000-0000-4000-8000-000000000000'
  assert.deepEqual(
    [await updateKey(ledger.database, nobody, {}), await revokeKey(ledger.database, nobody)],
    [false, false],
  )
})
