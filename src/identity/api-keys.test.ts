import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import { assertBooksBalance } from '../../test/support/audit.ts'
import { farFromEndOf } from '../../test/support/far-from-end.ts'
import {
  cancelledByClient,
  charge,
  codeOf,
  hold,
  openLedger,
  openPayer,
  place,
  serveAgain,
  voided,
} from '../../test/support/ledger.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import type { Payer } from '../ledger/hold-calls.ts'
import { fromAtomic, parse } from '../money/usdc.ts'
import { hashApiKey } from './api-key-format.ts'
import {
  createKey,
  KeyRevokedForGoodError,
  listKeys,
  oldSecretsMax,
  revokeKey,
  rotateKey,
  updateKey,
} from './api-keys.ts'
import { KeyFinder } from './key-finder.ts'
import { noOptions } from './key-options.ts'
import { addMember } from './members.ts'

const ledger = ledgerSuite()

test('the database cannot reveal a key: it stores only a hash and a hint', async () => {
  const payer = await openPayer(ledger.database, 0n)
  const { secret, id } = await createKey(ledger.database, {
    partition: payer.partition,
    accountId: payer.accountId,
    name: 'x',
  })
  const dump = [
    await ledger.database.query('select to_jsonb(k) as key from api_keys k where k.id = $1', [id]),
    await ledger.database.query('select to_jsonb(h) as hash from api_key_hashes h where h.key_id = $1', [id]),
  ]
  assert.deepEqual(
    dump.map((rows) => rows.length),
    [1, 1],
  )
  assert.ok(!JSON.stringify(dump).includes(secret.slice(6)))
  const bearer = await new KeyFinder({ database: ledger.database, now: () => 0 }).find(secret)
  const { partition, accountId } = payer
  assert.deepEqual(bearer, {
    partition,
    accountId,
    keyId: id,
    secretHash: hashApiKey(secret).toString('hex'),
    depositAddress: undefined,
    x402Wallet: undefined,
    options: noOptions,
  })
})

// Without a maximum, a free account rotated a key five times a second, and each list of its keys then read every old secret.
test('a key has at most ten old secrets that still work; a rotation without an overlap ends all of them', async () => {
  const { database } = ledger
  const { partition, accountId } = await openPayer(database, 0n)
  const { id } = await createKey(database, { partition, accountId, name: 'x' })
  const oldSecrets = async () => {
    const found = (await listKeys(database, accountId)).find((key) => key.id === id)
    return found!.oldSecrets.length
  }
  const week = { overlapSeconds: 604_800 }
  for (let count = 0; count < oldSecretsMax; count += 1) await rotateKey(database, id, week)
  assert.equal(await oldSecrets(), 10)
  await assert.rejects(rotateKey(database, id, week), { code: 'invalid_value', message: /old secrets that still work/ })
  assert.equal(await oldSecrets(), 10)
  await rotateKey(database, id, { overlapSeconds: 0 })
  assert.equal(await oldSecrets(), 0)
  await rotateKey(database, id, week)
  assert.equal(await oldSecrets(), 1)
})

test('raising and lowering a limit apply to the next request, and a limit below the held amount keeps existing holds', async () => {
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

test('a new day begins with the whole limit of a key, and a clock that stepped back begins none', async () => {
  await farFromEndOf('day')
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 100_000n, { limit: fromAtomic(10_000n), limitWindow: 'day' })
  await holds.end(charge(await hold(holds, payer, 2_000n), 1_500n))
  for (const [after, spent] of [
    ['0', 1_500n],
    ['1 day', 0n],
    ['-1 day', 1_500n],
  ] as const) {
    const [key] = await ledger.database.query<{ spent: bigint }>(
      'select k.spent from unnest(read_keys($1, array[$2::uuid], now() + $3::interval)) k',
      [payer.partition, payer.keyId, after],
    )
    assert.equal(key!.spent, spent, after)
  }
})

test('another window counts what was spent and is held in it, open requests included', async () => {
  await farFromEndOf('day')
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 100_000n, { limit: fromAtomic(10_000n) })
  await holds.end(charge(await hold(holds, payer, 2_000n), 1_500n))
  const open = await hold(holds, payer, 3_000n)
  for (const limitWindow of ['day', 'week', 'month', 'lifetime'] as const) {
    await changeWindowNow(payer, limitWindow)
    const [key] = (await listKeys(ledger.database, payer.accountId)).filter(({ id }) => id === payer.keyId)
    assert.deepEqual([key?.limitWindow, key?.spent, key?.held], [limitWindow, 1_500n, 3_000n])
    await assertBooksBalance(ledger.database)
  }
  await holds.end(charge(open, 2_500n))
  assert.equal(codeOf(await place(holds, payer, 6_001n)), 'key_limit_exceeded')
  await holds.end(voided(await hold(holds, payer, 6_000n)))
})

/** Makes the last change look older than a minute. */
async function changeWindowNow({ keyId }: Payer, limitWindow: 'lifetime' | 'day' | 'week' | 'month'): Promise<void> {
  await ledger.database.query(
    "update api_keys set window_changed_at = now() - interval '61 seconds' where window_changed_at is not null",
  )
  await updateKey(ledger.database, keyId, { limitWindow })
}

const rowVersions = (payer: Payer) =>
  ledger.database.query(`select id, xmin::text from requests where account_id = $1 order by id`, [payer.accountId])

// Rewriting the rows took seconds under the account's lock, and a customer could make all others wait with it.
test('another window rewrites no history, and counts old requests by the time of each', async () => {
  await farFromEndOf('day')
  const { database } = ledger
  const holds = await openLedger(database)
  const payer = await openPayer(database, 1_000_000n, { limit: fromAtomic(900_000n) })
  const ended = []
  for (const charged of [1n, 20n, 300n, 4_000n])
    ended.push(charge(await hold(holds, payer, 5_000n), charged, cancelledByClient))
  for (const call of ended) await holds.end(call)
  // Today, and in hours that can and can no longer change; all before the month began, or long ago.
  const ages = ['0', '36 hours', '40 days', '400 days']
  for (const [index, { requestId }] of ended.entries()) {
    const [times] = await database.query<{ created: string; ended: string }>(
      `select (created_at - $2::interval)::text as created, (ended_at - $2::interval)::text as ended from requests where id = $1`,
      [requestId, ages[index]],
    )
    // Citus refuses an interval of a column in an update.
    const { created, ended: end } = times!
    await database.query('update requests set created_at = $2, ended_at = $3 where id = $1', [requestId, created, end])
  }
  await database.query('delete from usage_hours where account_id = $1', [payer.accountId])
  await database.query(
    `insert into usage_hours (partition, account_id, hour, key_id, model, charged)
     select partition, account_id, date_trunc('hour', created_at, 'UTC'), key_id, model, sum(charged) from requests
      where account_id = $1 group by 1, 2, 3, 4, 5`,
    [payer.accountId],
  )
  const before = await rowVersions(payer)
  const open = await hold(holds, payer, 3_000n)
  for (const limitWindow of ['day', 'lifetime', 'week', 'month', 'lifetime'] as const) {
    await changeWindowNow(payer, limitWindow)
    await assertBooksBalance(database)
    const [key] = (await listKeys(database, payer.accountId)).filter(({ id }) => id === payer.keyId)
    assert.equal(key?.held, 3_000n)
    if (limitWindow === 'day') assert.equal(key?.spent, 1n)
    if (limitWindow === 'lifetime') assert.equal(key?.spent, 4_321n)
  }
  assert.deepEqual(await rowVersions(payer), before)
  await holds.end(charge(open, 50_000n / 50n))
  // A charge of the window that is given back is given back to the key as well, whatever window its row was held in.
  await changeWindowNow(payer, 'day')
  assert.equal(await serveAgain(database, holds, payer, [ended[0]!.requestId, 1n]), 1n)
  await assertBooksBalance(database)
})

test('a window is changed at most once a minute, and a refused change leaves the whole key unchanged', async () => {
  const { database } = ledger
  const payer = await openPayer(database, 0n, { limit: fromAtomic(1_000n) })
  await updateKey(database, payer.keyId, { limitWindow: 'day' })
  // The same window again is no change.
  await updateKey(database, payer.keyId, { limitWindow: 'day', name: 'daily' })
  await assert.rejects(updateKey(database, payer.keyId, { limitWindow: 'month', name: 'monthly' }), {
    code: 'rate_limited',
    message: /once a minute\. Try again in \d+ s; nothing was changed/,
  })
  const [key] = await listKeys(database, payer.accountId)
  assert.deepEqual([key?.name, key?.limitWindow], ['daily', 'day'])
  await changeWindowNow(payer, 'month')
})

// In a window of today the old spend would not count, and the member could spend the limit once more.
test('a key that is revoked and given another window concurrently still counts towards the limit of its member', async () => {
  const { database } = ledger
  const limit = fromAtomic(1_000n)
  const { partition, accountId } = await openPayer(database, 10_000n)
  const personId = randomUUID()
  await database.query('insert into people (id, name) values ($1, $2)', [personId, 'Member'])
  await database.transaction((connection) =>
    addMember(connection, { partition, accountId }, { personId, role: 'developer', limit }),
  )
  const create = () => createKey(database, { partition, accountId, name: 'mine', limit, madeBy: personId })
  const { id: keyId } = await create()
  const holds = await openLedger(database)
  const spent = await hold(holds, { partition, accountId, keyId }, 1_000n)
  await holds.end(charge(spent, 1_000n))
  const weekAgo = new Date(Date.now() - 7 * 86_400_000)
  await database.query('update requests set created_at = $2, ended_at = $2 where id = $1', [spent.requestId, weekAgo])
  await database.query(
    "update usage_hours set hour = date_trunc('hour', $2::timestamptz, 'UTC') where account_id = $1",
    [accountId, weekAgo],
  )
  await Promise.allSettled([revokeKey(database, keyId), updateKey(database, keyId, { limitWindow: 'day' })])
  await assert.rejects(create(), { code: 'member_limit_exceeded' })
  await assert.rejects(updateKey(database, keyId, { limitWindow: 'day' }), KeyRevokedForGoodError)
})

test('the ledger balances after windows change while requests are held and charged', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 10_000_000n, { limit: parse('9') })
  const spending = Promise.all(
    Array.from({ length: 40 }, async () => {
      for (let turn = 0; turn < 5; turn += 1) await holds.end(charge(await hold(holds, payer, 1_000n), 700n))
    }),
  )
  for (const limitWindow of ['day', 'month', 'lifetime', 'week'] as const) await changeWindowNow(payer, limitWindow)
  await spending
  await assertBooksBalance(ledger.database)
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

test('revoked keys do not count against the maximum, and of those that were never used the newest 900 are kept', async () => {
  const { database } = ledger
  const { partition, accountId } = await openPayer(database, 0n)
  const [own] = await listKeys(database, accountId)
  const add = (count: number, revoked: string) =>
    database.query(
      `insert into api_keys (partition, id, account_id, name, hint, revoked_at)
       select $1, gen_random_uuid(), $2, 'many', '', ${revoked} from generate_series(1, $3) n`,
      [partition, accountId, count],
    )
  await add(1_000, "now() - n * interval '1 second'")
  const { id } = await createKey(database, { partition, accountId, name: 'new' })
  const listed = await listKeys(database, accountId)
  assert.deepEqual([listed.length, ...listed.slice(0, 2).map((key) => key.id)], [902, id, own!.id])
  await add(998, 'null')
  await assert.rejects(createKey(database, { partition, accountId, name: 'one too many' }), {
    code: 'invalid_value',
    message: /^The account has .* keys, which is the maximum/,
  })
  await revokeKey(database, own!.id)
  await createKey(database, { partition, accountId, name: 'in its place' })
})
