import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { type TestContext, test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import { assertBooksBalance } from '../../test/support/audit.ts'
import {
  cancelledByClient,
  charge,
  codeOf,
  hold,
  openLedger,
  openPayer,
  place,
  serveAgain,
  settle,
  voided,
} from '../../test/support/ledger.ts'
import { testDatabase } from '../../test/support/postgres.ts'
import { newWallet, payFor, signedPayment } from '../../test/support/wallet-payments.ts'
import type { Connection, Database } from '../db/database.ts'
import { findKey, updateKey } from '../identity/api-keys.ts'
import { fromAtomic } from '../money/usdc.ts'
import { findRecentViolations, findViolations } from './audit.ts'
import type { Hold, Payer } from './hold-calls.ts'
import type { Holds } from './holds.ts'
import { endOfMonth, type Month, monthOf, startOfMonth } from './month.ts'
import { verifyMonth, writeMonth } from './month-file.ts'
import { createRequestId, type RequestId } from './request-id.ts'
import { createRequestMonths, findRequest } from './requests.ts'
import { dropMonth, readMonthRows, sealMonth } from './seal-month.ts'
import { checkNotArchived, findSealedMonth, readArchivedBefore } from './sealed-months.ts'

const now = new Date()
/** The month `count` months ago: with 2, it has certainly ended. */
const monthAgo = (count: number) => monthOf(new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - count, 1)))
const month = monthAgo(2)
const noLeaves = async () => randomBytes(64)

/** A ledger with partitions for the months before, as it has when it has run for a while. */
async function openMonths(t: TestContext) {
  const { database, drop } = await testDatabase()
  atEnd(t, drop)
  for (const count of [3, 2, 1]) {
    await database.query('select create_request_months($1, 2)', [endOfMonth(monthAgo(count))])
  }
  await createRequestMonths(database)
  return { database, holds: await openLedger(database), payer: await openPayer(database, 1_000_000n) }
}

/** A request that came in a month and was charged. */
async function request(holds: Holds, payer: Payer, of: Month, charged = 90n, changes = {}): Promise<RequestId> {
  const id = createRequestId(payer.partition, startOfMonth(of).getTime() + 86_400_000)
  const decision = await place(holds, payer, 100n, id)
  if ('refusal' in decision) throw new Error(decision.refusal.code)
  await holds.end(charge(decision.hold, charged, changes))
  return id
}

/** Pays everything, as the service does, with a root. */
async function pay(database: Database, payers: readonly Payer[]): Promise<void> {
  await settle(database, payers, 'completed')
  await database.query(`update payments set root = decode(repeat('11', 32), 'hex') where root is null`)
}

async function exported(database: Database, of: Month): Promise<string> {
  let text = ''
  for await (const chunk of writeMonth(of, readMonthRows(database, of))) text += chunk
  return text
}

const verified = (text: string) => verifyMonth(chunksOf(text))
async function* chunksOf(text: string): AsyncGenerator<Uint8Array> {
  for (let start = 0; start < text.length; start += 1_000) yield Buffer.from(text.slice(start, start + 1_000))
}

async function archive(database: Database, of: Month): Promise<void> {
  await sealMonth(database, of, noLeaves)
  await dropMonth(database, (await verified(await exported(database, of))).seal)
}

test('a month is sealed, exported, verified and dropped, and the ledger still balances', async (t) => {
  const { database, holds, payer } = await openMonths(t)
  const other = await openPayer(database, 10_000n)
  const id = await request(holds, payer, month)
  await request(holds, payer, month, 40n)
  await request(holds, other, month, 10n)
  await pay(database, [payer, other])
  const kept = await request(holds, payer, monthAgo(1), 7n)
  await holds.end(voided(await hold(holds, payer, 100n)))
  await pay(database, [payer])

  const sealed = await sealMonth(database, month, noLeaves)
  assert.deepEqual([sealed.requests, sealed.charged], [3, 140n])
  assert.deepEqual(await sealMonth(database, month, noLeaves), sealed, 'sealing it again changes nothing')
  await assertBooksBalance(database)

  const text = await exported(database, month)
  const report = await verified(text)
  assert.deepEqual([report.isWhole, report.problems], [true, []])
  assert.equal(report.seal.root, sealed.root.toString('hex'))
  await dropMonth(database, report.seal)
  await assertBooksBalance(database)
  assert.deepEqual(await findRecentViolations(database, [payer.accountId, other.accountId], 60), [])
  assert.equal((await readArchivedBefore(database))?.getTime(), endOfMonth(month).getTime())

  assert.equal(await findRequest(database, payer.partition, payer.accountId, id), undefined)
  await assert.rejects(checkNotArchived(database, id), { code: 'request_archived' })
  assert.ok(await findRequest(database, payer.partition, payer.accountId, kept))
  await checkNotArchived(database, kept)
  const [hours] = await database.query<{ charged: bigint }>('select sum(charged)::bigint as charged from usage_hours')
  assert.equal(hours!.charged, 147n, 'the hourly sums stay')

  await assert.rejects(dropMonth(database, report.seal), /already dropped/)
  await createRequestMonths(database)
  await assert.rejects(request(holds, payer, month), 'nothing is added to a month that is gone')
  await holds.end(charge(await hold(holds, payer, 100n), 30n))
  await assertBooksBalance(database)
})

test('a month with requests of wallets is sealed once their receipts are signed', async (t) => {
  const { database, holds } = await openMonths(t)
  const wallet = await newWallet(database)
  const id = createRequestId(wallet.partition, startOfMonth(month).getTime() + 86_400_000)
  const decision = await payFor(database, holds, { ...signedPayment(wallet, 100n), requestId: id }, 100n)
  assert.ok(typeof decision !== 'string' && 'hold' in decision)
  await holds.end(charge(decision.hold, 90n))
  await assert.rejects(sealMonth(database, month, noLeaves), /not paid on chain/)
  await pay(database, [wallet])
  const { charged } = await sealMonth(database, month, noLeaves)
  assert.equal(charged, 90n)
  await assertBooksBalance(database)
})

test('after a month is dropped, each corruption of what is left of it is found', async (t) => {
  const { database, holds, payer } = await openMonths(t)
  await request(holds, payer, month)
  await request(holds, payer, monthAgo(1), 20n)
  await pay(database, [payer])
  await archive(database, month)
  await assertBooksBalance(database)
  const corruptions: Readonly<Record<string, readonly [string, string]>> = {
    I4: ['update sealed_keys set charged = charged + 1', 'update sealed_keys set charged = charged - 1'],
    I8: [
      `update sealed_accounts set entries = entries + '{[2,3)}'`,
      `update sealed_accounts set entries = entries - '{[2,3)}'`,
    ],
    I9: ['update payments set value = value + 1', 'update payments set value = value - 1'],
    I11: ['update sealed_accounts set charged = charged + 1', 'update sealed_accounts set charged = charged - 1'],
  }
  for (const [invariant, [corrupt, repair]] of Object.entries(corruptions)) {
    await database.execute(corrupt)
    const found = await findViolations(database)
    assert.ok(
      found.some((violation) => violation.invariant === invariant),
      `${invariant}: ${JSON.stringify(found)}`,
    )
    await database.execute(repair)
  }
  await assertBooksBalance(database)
})

test('limits of keys count what was spent in a dropped month, less refunds, also after their window is changed', async (t) => {
  const { database, holds } = await openMonths(t)
  const payer = await openPayer(database, 1_000_000n, { limit: fromAtomic(200n), limitWindow: 'day' })
  const cancelled = await request(holds, payer, month, 60n, cancelledByClient)
  assert.equal(await serveAgain(database, holds, payer, [cancelled, 60n]), 60n)
  await request(holds, payer, month, 50n)
  await database.query('delete from replays')
  await pay(database, [payer])
  await archive(database, month)
  await assertBooksBalance(database)
  await updateKey(database, payer.keyId, { limitWindow: 'lifetime' })
  assert.equal((await findKey(database, payer, payer.keyId))!.spent, 110n)
  await assertBooksBalance(database)
  assert.equal(codeOf(await place(holds, payer, 91n)), 'key_limit_exceeded')
  const fits = (await place(holds, payer, 90n)) as { hold: Hold }
  await holds.end(voided(fits.hold))
})

test('a month that is not over, or has open, retried or unpaid requests, is not sealed', async (t) => {
  const { database, holds, payer } = await openMonths(t)
  await assert.rejects(sealMonth(database, monthOf(new Date()), noLeaves), /is not over/)
  const id = createRequestId(payer.partition, startOfMonth(month).getTime())
  const open = (await place(holds, payer, 100n, id)) as { hold: Hold }
  await assert.rejects(sealMonth(database, month, noLeaves), /1 open requests/)
  await holds.end(voided(open.hold))
  // This request cost nothing and would wait for later charges: the seal asks for a payment of 0.
  await assert.rejects(sealMonth(database, month, noLeaves), /1 accounts have requests .* not paid/)
  const [account] = await database.query<{ pay_to: bigint }>('select pay_to from accounts where id = $1', [
    payer.accountId,
  ])
  assert.equal(account!.pay_to, 1n)
  await database.query('select make_payments($1, array[$2::uuid], array[$2::uuid], 4096, 1000000000, 0)', [
    payer.partition,
    payer.accountId,
  ])
  await assert.rejects(sealMonth(database, month, noLeaves), /not paid/, 'a payment under way is not final')
  await database.query(`update payments set state = 'completed', root = decode(repeat('11', 32), 'hex')`)
  await sealMonth(database, month, noLeaves)
  await assertBooksBalance(database)
})

/** A database that calls `act` before each statement with these words, which may return another statement in its place. */
function intercepting(
  database: Database,
  words: string,
  act: (connection: Connection, text: string, values?: readonly unknown[]) => Promise<string | undefined>,
): Database {
  const around = (connection: Connection): Connection => ({
    execute: (script) => connection.execute(script),
    queryPrepared: (name, text, values) => connection.queryPrepared(name, text, values),
    async query(text, values) {
      const other = text.includes(words) ? await act(connection, text, values) : undefined
      return other === undefined ? connection.query(text, values) : connection.query(other)
    },
  })
  return {
    ...around(database),
    transaction: (work, options) => database.transaction((connection) => work(around(connection)), options),
    close: () => database.close(),
  }
}

test('requests can begin while a seal looks for requests that can be retried, of which there must be none', async (t) => {
  const { database, holds, payer } = await openMonths(t)
  const cancelled = await request(holds, payer, month, 60n, cancelledByClient)
  await serveAgain(database, holds, payer, [cancelled, 60n])
  await pay(database, [payer])
  let looks = 0
  const watched = intercepting(database, 'from replays', async () => {
    await database.transaction((other) => other.execute('lock table accounts in row exclusive mode nowait'))
    looks += 1
    return undefined
  })
  await assert.rejects(sealMonth(watched, month, noLeaves), /1 requests that can be retried/)
  await database.query('delete from replays')
  await sealMonth(watched, month, noLeaves)
  assert.equal(looks, 2)
})

test('a seal that finds the database slow lets requests begin, and tries again', async (t) => {
  const { database, holds, payer } = await openMonths(t)
  await request(holds, payer, month)
  await pay(database, [payer])
  let looks = 0
  const slow = intercepting(database, 'from holds', async () => {
    looks += 1
    return looks === 1 ? 'select pg_sleep(3600)' : undefined
  })
  assert.equal((await sealMonth(slow, month, noLeaves)).requests, 1)
  assert.ok(looks > 1)
})

test('months are sealed and dropped in order, an empty one and rows outside of their partition included', async (t) => {
  const { database, holds, payer } = await openMonths(t)
  const stray = '2020-02' as Month
  await request(holds, payer, stray, 5n)
  await request(holds, payer, month)
  await pay(database, [payer])
  await assert.rejects(sealMonth(database, month, noLeaves), /2020-02 has requests and is not sealed/)
  await sealMonth(database, stray, noLeaves)
  const empty = await sealMonth(database, monthAgo(3), noLeaves)
  assert.equal(empty.requests, 0)
  await sealMonth(database, month, noLeaves)
  await assert.rejects(sealMonth(database, monthAgo(4), noLeaves), /sealed in order/)
  const seals = await Promise.all(
    [stray, monthAgo(3), month].map(async (of) => (await verified(await exported(database, of))).seal),
  )
  await assert.rejects(dropMonth(database, seals[2]!), /drop 2020-02 first/)
  for (const seal of seals) await dropMonth(database, seal)
  assert.deepEqual(await database.query('select from requests'), [])
  await assertBooksBalance(database)
})

// The plans of a worker are not seen from the coordinator.
const isOnCluster = process.env.TEST_CITUS_WORKERS !== undefined
test('while a drop keeps requests from being read, it reads them by their primary key only', {
  skip: isOnCluster,
}, async (t) => {
  const { database } = await openMonths(t)
  await sealMonth(database, month, noLeaves)
  await database.query(
    `insert into requests (partition, id, account_id, key_id, node, status, model, stream, max_tokens, price_version, created_at, ended_at)
     select 0, first_request_id('2020-02-01'::timestamptz + n * interval '1 second'), x.id, x.id, x.id, 'refused', 'm', false, 1, 1, now(), now()
       from generate_series(1, 1000) n, gen_random_uuid() x (id)`,
  )
  await database.query('analyze requests_other')
  const plans: string[] = []
  const watched = intercepting(database, 'from requests r', async (connection, text, values) => {
    const rows = await connection.query<{ 'QUERY PLAN': string }>(`explain ${text}`, values)
    plans.push(rows.map((row) => row['QUERY PLAN']).join('\n'))
    return undefined
  })
  await dropMonth(watched, (await verified(await exported(database, month))).seal)
  assert.ok(plans.length > 0)
  for (const plan of plans) assert.match(plan, /Index Cond: \(\(partition = /)
})

test('two concurrent drops drop once, and a foreign file drops nothing', async (t) => {
  const { database, holds, payer } = await openMonths(t)
  await request(holds, payer, month)
  await pay(database, [payer])
  const sealed = await sealMonth(database, month, noLeaves)
  const { seal } = await verified(await exported(database, month))
  await assert.rejects(dropMonth(database, { ...seal, root: '00'.repeat(32) }), /roots differ/)
  await assert.rejects(dropMonth(database, { ...seal, month: monthAgo(1) }), /is not sealed/)
  assert.equal((await findSealedMonth(database, month))!.root.toString('hex'), sealed.root.toString('hex'))
  const results = await Promise.allSettled([dropMonth(database, seal), dropMonth(database, seal)])
  assert.deepEqual(results.map(({ status }) => status).sort(), ['fulfilled', 'rejected'])
  await assertBooksBalance(database)
})

test('each changed, missing, added or moved row of a file is named, and a truncated file is detected', async (t) => {
  const { database, holds, payer } = await openMonths(t)
  for (const charged of [10n, 20n, 30n, 40n]) await request(holds, payer, month, charged)
  const lines = (await exported(database, month)).trimEnd().split('\n')
  const problems = async (changed: readonly string[]) => (await verified(`${changed.join('\n')}\n`)).problems.join('; ')
  const changed = lines.with(2, lines[2]!.replace(/"charged":"\d+"/, '"charged":"21"'))
  assert.match(await problems(changed), /line 3: row 2 was changed; the seal says charged_atomic 100; .*root/)
  assert.match(await problems(lines.toSpliced(2, 1)), /line 3: row 2 is missing; .*requests 4.*root/)
  assert.match(await problems(lines.toSpliced(3, 0, lines[2]!)), /line 4: row 2 was added, or is out of order/)
  const moved = lines.with(2, lines[3]!).with(3, lines[2]!)
  assert.match(await problems(moved), /line 3: row 2 is missing; line 4: row 2 was added, or is out of order/)
  assert.match(await problems(lines.slice(0, -1)), /the seal is missing: the file is cut off/)
  assert.match(await problems([...lines, lines[1]!]), /it comes after the seal/)
  await assert.rejects(verified(''), /empty/)
  await assert.rejects(verified('{"object":"receipts"}\n'), /not an archived month/)
})

test('requests go on while a month is sealed and dropped', async (t) => {
  const { database, holds, payer } = await openMonths(t)
  for (let count = 0; count < 20; count += 1) await request(holds, payer, month)
  await pay(database, [payer])
  let running = true
  const traffic = (async () => {
    let served = 0
    for (; running; served += 1) await holds.end(charge(await hold(holds, payer, 100n), 1n))
    return served
  })()
  try {
    await archive(database, month)
  } finally {
    running = false
  }
  assert.ok((await traffic) > 0)
  await assertBooksBalance(database)
})
