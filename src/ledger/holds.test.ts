import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import { farFromEndOf } from '../../test/support/far-from-end.ts'
import {
  charge,
  codeOf,
  hold,
  holdCall,
  openKey,
  openLedger,
  openPayer,
  partitions,
  place,
  search,
  searched,
  searchPrice,
  sum,
  voided,
} from '../../test/support/ledger.ts'
import { testDatabase } from '../../test/support/postgres.ts'
import { replaceIn } from '../../test/support/replace-in-database.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import { until } from '../../test/support/until.ts'
import { type Database, openDatabase } from '../db/database.ts'
import { revokeKey, updateKey } from '../identity/api-keys.ts'
import { fromAtomic, parse } from '../money/usdc.ts'
import { createAccount, findAccount } from './accounts.ts'
import { findViolations } from './audit.ts'
import { creditDeposit } from './deposits.ts'
import type { Hold, HoldCall, HoldDecision } from './hold-calls.ts'
import { KeyChangedError } from './holds.ts'
import { createRequestId } from './request-id.ts'

const ledger = ledgerSuite()

const isOnCluster = process.env.TEST_CITUS_WORKERS !== undefined

const helds = (decisions: readonly HoldDecision[]) =>
  decisions.flatMap((decision) => ('hold' in decision ? [decision.hold] : []))

test('from the second request on the payer authorizes about the true cost', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 10_000n)
  const authorized: bigint[] = []
  for (let turn = 0; turn < 4; turn += 1) {
    const placed = await hold(holds, payer, 1_000n)
    authorized.push(placed.authorized)
    await holds.end(charge(placed, 200n))
  }
  assert.deepEqual(authorized, [1_000n, 200n, 200n, 200n])
  const account = await findAccount(ledger.database, payer.partition, payer.accountId)
  assert.deepEqual([account?.gateway, account?.credit, account?.spendable], [8_400n, 800n, 9_200n])
})

// The queue of other calls is bounded. A refused end would keep the hold until its node dies, and then charge too little.
test('an end is accepted however many wait', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 10_000n)
  const placed = await hold(holds, payer, 1_000n)
  const unknown = Array.from({ length: 16_384 }, () =>
    holds.end(voided({ ...placed, requestId: createRequestId(payer.partition, Date.now()) })),
  )
  const ended = await holds.end(charge(placed, 200n))
  assert.deepEqual([ended.endedNow, ended.charged], [true, 200n])
  await Promise.all(unknown)
})

test('a request whose caller gave up before its hold was sent is either held and ended, or refused, never both', async () => {
  const { database } = ledger
  const sending = Promise.withResolvers<void>()
  const waiting = askedForHoldsAfter(sending.promise, database)
  // The end of the late hold may take longer than that, too.
  const holds = await openLedger(waiting, { waitMsMax: 20, onLost() {} })
  const [payer, poor] = [await openPayer(database, 10_000n), await openPayer(database, 10n)]
  const calls = [holdCall(payer, 1_000n), holdCall(poor, 1_000n)]
  for (const placed of await Promise.allSettled(calls.map((call) => holds.place(call))))
    assert.equal(placed.status, 'rejected')
  const refuse = (call: HoldCall) => holds.refuse({ ...call, errorCode: 'overloaded' })
  for (const call of calls) refuse(call)
  // Written with the others, if those were written now.
  const unheld = holdCall(payer, 0n)
  refuse(unheld)
  const statusOf = async ({ requestId }: HoldCall) => {
    const [row] = await database.query<{ status: string }>('select status from requests where id = $1', [requestId])
    return row?.status
  }
  await until(async () => (await statusOf(unheld)) === 'refused')
  sending.resolve()
  await holds.drained()
  assert.deepEqual(await Promise.all(calls.map(statusOf)), ['failed', 'refused'])
  assert.deepEqual(await findViolations(database), [])
})

// The node lost the reply, held again on another connection and ended the request. Meanwhile the network delayed the first statement.
test('a hold that the database gets after its repetition has ended holds nothing', async () => {
  const { database } = ledger
  let late: (() => Promise<readonly unknown[]>) | undefined
  const slow = replaceIn(database, {
    async queryPrepared(...call) {
      if (call[0] !== 'place_holds' || late !== undefined) return database.queryPrepared(...call)
      late = () => database.queryPrepared(...call)
      throw new Error('Query read timeout')
    },
  })
  const holds = await openLedger(slow)
  const payer = await openPayer(database, 10_000n)
  await holds.end(voided(await hold(holds, payer, 1_000n)))
  assert.partialDeepStrictEqual(await late!(), [{ decision: 'failed' }])
  assert.equal((await findAccount(database, payer.partition, payer.accountId))?.held, 0n)
  assert.deepEqual(await findViolations(database), [])
})

test('a database that is too busy for one more call refuses holds, and makes ends and tool calls wait', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 10_000n)
  const open = await hold(holds, payer, 1_000n)
  await holds.extend({ requestId: open.requestId, payer, total: fromAtomic(searchPrice) })
  const { database, busyForNext } = crowdable(ledger.database)
  const crowded = await openLedger(database)
  busyForNext(4)
  await assert.rejects(place(crowded, payer, 100n), { code: 'overloaded' })
  crowded.recordToolCall(searched(open, 1))
  const call = charge(open, searchPrice, { searchCost: fromAtomic(searchPrice), searchCalls: 1 })
  assert.equal((await crowded.end(call)).endedNow, true)
})

/** A database that is not asked for holds before `sent`. */
function askedForHoldsAfter(sent: Promise<void>, database: Database): Database {
  return replaceIn(database, {
    async queryPrepared(name, ...call) {
      if (name === 'place_holds') await sent
      return database.queryPrepared(name, ...call)
    },
  })
}

/** A database whose next prepared calls can be made to fail like those of one with a full queue. */
function crowdable(database: Database) {
  const full = openDatabase({ url: 'postgresql://127.0.0.1/none', poolMax: 1, waitingMax: 0, applicationName: 'full' })
  let left = 0
  const crowded = replaceIn(database, {
    queryPrepared: (...call) => (left-- > 0 ? full.query('select 1') : database.queryPrepared(...call)),
  })
  return { database: crowded, busyForNext: (calls: number) => void (left = calls) }
}

// Five hundred requests race for money that covers ten. Whatever the interleaving, ten win: this is what lets us serve
// before being paid.
test('concurrent holds never reserve more than the balance', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 10_999n)
  const decisions = await Promise.all(Array.from({ length: 500 }, () => place(holds, payer, 1_000n)))
  const won = helds(decisions)
  assert.equal(won.length, 10)
  assert.equal(decisions.filter((decision) => codeOf(decision) === 'insufficient_balance').length, 490)
  assert.equal((await findAccount(ledger.database, payer.partition, payer.accountId))?.gateway, 999n)
  await Promise.all(won.map((placed) => holds.end(voided(placed))))
})

test('concurrent holds never pass a key’s limit, whatever the account could pay', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 1_000_000n, { limit: parse('0.0105') })
  const decisions = await Promise.all(Array.from({ length: 500 }, () => place(holds, payer, 1_000n)))
  const won = helds(decisions)
  assert.equal(won.length, 10)
  assert.equal(decisions.filter((decision) => codeOf(decision) === 'key_limit_exceeded').length, 490)
  await Promise.all(won.map((placed) => holds.end(charge(placed, 1_000n))))
  assert.equal(codeOf(await place(holds, payer, 501n)), 'key_limit_exceeded')
})

test('concurrent holds never pass what may be in flight', async () => {
  const holds = await openLedger(ledger.database, { cap: '0.01' })
  const payer = await openPayer(ledger.database, 1_000_000n)
  const decisions = await Promise.all(Array.from({ length: 500 }, () => place(holds, payer, 1_000n)))
  const won = helds(decisions)
  assert.equal(won.length, 10)
  assert.equal(decisions.filter((decision) => codeOf(decision) === 'in_flight_cap').length, 490)
  assert.equal(codeOf(await place(holds, payer, 10_001n)), 'quote_exceeds_cap')
  await Promise.all(won.map((placed) => holds.end(charge(placed, 10n))))
  const next = await hold(holds, payer, 10_000n)
  await holds.end(voided(next))
})

test('limits hold when several nodes decide concurrently', async () => {
  const nodes = await Promise.all(Array.from({ length: 4 }, () => openLedger(ledger.database)))
  const payer = await openPayer(ledger.database, 1_000_000n, { limit: parse('0.025') })
  const decisions = await Promise.all(
    Array.from({ length: 400 }, (_, index) => place(nodes[index % 4]!, payer, 1_000n)),
  )
  const won = helds(decisions)
  assert.equal(won.length, 25)
  await Promise.all(won.map((placed, index) => nodes[(index + 1) % 4]!.end(voided(placed))))
})

test('repeating a hold reserves nothing more and gives the stored decision', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 5_000n)
  const call = holdCall(payer, 1_000n)
  const first = await holds.place(call)
  const second = await holds.place(call)
  assert.deepEqual(second, first)
  assert.equal((await findAccount(ledger.database, payer.partition, payer.accountId))?.gateway, 4_000n)
  await holds.end(voided(helds([first])[0]!))
})

test('a request ends once: the second end changes nothing and returns the first', async () => {
  const holds = await openLedger(ledger.database)
  const placed = await hold(holds, await openPayer(ledger.database, 5_000n), 1_000n)
  assert.deepEqual(await holds.end(charge(placed, 300n)), { endedNow: true, status: 'succeeded', charged: 300n })
  assert.deepEqual(await holds.end(voided(placed)), { endedNow: false, status: 'succeeded', charged: 300n })
})

test('two concurrent ends of one request leave one end', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 5_000n)
  const placed = await hold(holds, payer, 1_000n)
  const ends = await Promise.all([holds.end(charge(placed, 300n)), holds.end(voided(placed))])
  assert.deepEqual(ends.map((end) => end.endedNow).sort(), [false, true])
})

test('a void gives back exactly what the hold took, from where it took it', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 5_000n)
  await holds.end(charge(await hold(holds, payer, 1_000n), 400n))
  const before = await findAccount(ledger.database, payer.partition, payer.accountId)
  const placed = await hold(holds, payer, 900n)
  assert.deepEqual([placed.fromCredit, placed.authorized], [600n, 300n])
  await holds.end(voided(placed))
  assert.deepEqual(await findAccount(ledger.database, payer.partition, payer.accountId), before)
})

test('a hold that credit covers reserves nothing new', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 5_000n)
  await holds.end(charge(await hold(holds, payer, 1_000n), 100n))
  const placed = await hold(holds, payer, 900n)
  assert.deepEqual([placed.authorized, placed.fromCredit], [0n, 900n])
  await holds.end(voided(placed))
})

test('a charge above its hold is refused, and its neighbours in the batch are not', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 50_000n)
  const placed = await Promise.all(Array.from({ length: 5 }, () => hold(holds, payer, 1_000n)))
  const ends = await Promise.allSettled(placed.map((one, index) => holds.end(charge(one, index === 2 ? 1_001n : 500n))))
  assert.deepEqual(
    ends.map((end) => end.status),
    ['fulfilled', 'fulfilled', 'rejected', 'fulfilled', 'fulfilled'],
  )
  await holds.end(voided(placed[2]!))
})

// A model that costs nothing is quoted at 0. The row said that the debt was authorized, and the account knew nothing of it.
test('even a free request collects the debt of its account', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 50_000n)
  await search(holds, await hold(holds, payer, 1_000n))
  const debt = searchPrice - 1_000n
  const before = (await findAccount(ledger.database, payer.partition, payer.accountId))!
  assert.equal(before.credit, -debt)
  const free = await hold(holds, payer, 0n)
  assert.deepEqual([free.authorized, free.fromCredit], [debt, -debt])
  const after = (await findAccount(ledger.database, payer.partition, payer.accountId))!
  assert.deepEqual([after.credit, after.gateway, after.held], [0n, before.gateway - debt, 0n])
  await holds.end(charge(free, 0n))
  assert.deepEqual(await findViolations(ledger.database), [])
})

test('an expired, a revoked and a foreign key hold nothing', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 5_000n)
  const other = await openPayer(ledger.database, 5_000n)
  const expired = await openKey(
    ledger.database,
    { partition: payer.partition, id: payer.accountId },
    { expiresAt: new Date(Date.now() - 1_000) },
  )
  const revoked = await openKey(ledger.database, { partition: payer.partition, id: payer.accountId })
  await revokeKey(ledger.database, revoked)
  const codes = await Promise.all(
    [expired, revoked, other.keyId].map(async (keyId) => codeOf(await place(holds, { ...payer, keyId }, 1_000n))),
  )
  assert.deepEqual(codes, ['api_key_expired', 'api_key_revoked', 'invalid_api_key'])
})

test('a hold fails when the key’s options are not those that allowed the request, and only that hold', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 5_000n)
  const placeUnder = async (optionsVersion: number) => {
    const call = { model: 'gpt-5.6-terra', stream: false, maxTokens: 100, quote: fromAtomic(1_000n), optionsVersion }
    const requestId = createRequestId(payer.partition, Date.now())
    return holds.place({ requestId, payer, ...call })
  }
  await updateKey(ledger.database, payer.keyId, { options: { webTools: false } })
  const [older, current, newer] = await Promise.allSettled([placeUnder(0), placeUnder(1), placeUnder(2)])
  for (const { reason } of [older, newer] as PromiseRejectedResult[]) assert.ok(reason instanceof KeyChangedError)
  assert.equal((await findAccount(ledger.database, payer.partition, payer.accountId))?.held, 1_000n)
  const [held] = helds([(current as PromiseFulfilledResult<HoldDecision>).value])
  await holds.end(voided(held!))
})

test('a limit per day counts today’s requests only, and a request of yesterday that ends today leaves it alone', async () => {
  await farFromEndOf('day')
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 100_000n, { limit: parse('0.001'), limitWindow: 'day' })
  const yesterday = await hold(holds, payer, 1_000n)
  assert.equal(codeOf(await place(holds, payer, 1n)), 'key_limit_exceeded')
  // A day passes: the window the key and the request were in becomes yesterday's.
  await moveToYesterday(yesterday)
  const today = await hold(holds, payer, 600n)
  await holds.end(charge(yesterday, 1_000n))
  await holds.end(charge(today, 600n))
  assert.equal(codeOf(await place(holds, payer, 401n)), 'key_limit_exceeded')
  const rest = await hold(holds, payer, 400n)
  await holds.end(voided(rest))
})

async function moveToYesterday({ requestId, payer }: Hold): Promise<void> {
  const { database } = ledger
  const [key] = await database.query<{ day: Date }>('select window_start as day from api_keys where id = $1', [
    payer.keyId,
  ])
  const day = new Date(key!.day.getTime() - 86_400_000)
  await database.query('update api_keys set window_start = $2 where id = $1', [payer.keyId, day])
  await database.query('update holds set key_window = $2, created_at = $3 where id = $1', [
    requestId,
    day,
    new Date(Date.now() - 86_400_000),
  ])
}

test('concurrent extensions never pass the balance, the key’s limit or what may be in flight', async () => {
  for (const [cap, balance, limit, refusal] of [
    ['1000', 20_000n, undefined, 'insufficient_balance'],
    ['1000', 100_000n, parse('0.02'), 'key_limit_exceeded'],
    ['0.02', 100_000n, undefined, 'in_flight_cap'],
  ] as const) {
    const holds = await openLedger(ledger.database, { cap })
    const payer = await openPayer(ledger.database, balance, { limit })
    // Ten requests hold half of the limit. Each asks for the same amount again, and a little more.
    const placed = await Promise.all(Array.from({ length: 10 }, () => hold(holds, payer, 1_000n)))
    const decisions = await Promise.all(
      placed.map(({ requestId }) => holds.extend({ requestId, payer, total: parse('0.0011') })),
    )
    assert.deepEqual(
      decisions,
      placed.map((_, index) => (index < 9 ? 'extended' : refusal)),
    )
    await Promise.all(placed.map((each, index) => holds.end(index % 2 ? voided(each) : charge(each, 1_000n))))
  }
})

test('two extensions of one request in one moment are made in their order', async () => {
  const holds = await openLedger(ledger.database)
  const { requestId, payer, ...placed } = await hold(holds, await openPayer(ledger.database, 5_000n), 1_000n)
  const totals = ['0.001', '0.002', '0.009', '0.0005'].map((total) => parse(total))
  assert.deepEqual(await Promise.all(totals.map((total) => holds.extend({ requestId, payer, total }))), [
    'extended',
    'extended',
    'insufficient_balance',
    'extended',
  ])
  const account = await findAccount(ledger.database, payer.partition, payer.accountId)
  assert.equal(account?.spendable, 2_000n)
  await holds.end(charge({ requestId, payer, ...placed }, 3_000n))
})

test('a request whose key was revoked may still be extended; one whose key has begun a new window may not', async () => {
  await farFromEndOf('day')
  const holds = await openLedger(ledger.database)
  const revoked = await hold(holds, await openPayer(ledger.database, 5_000n), 1_000n)
  await revokeKey(ledger.database, revoked.payer.keyId)
  assert.equal(await holds.extend({ ...revoked, total: parse('0.001') }), 'extended')

  const daily = await openPayer(ledger.database, 50_000n, { limit: parse('0.005'), limitWindow: 'day' })
  const yesterday = await hold(holds, daily, 1_000n)
  await moveToYesterday(yesterday)
  // Until a request of today has begun the new window, the key still counts yesterday's.
  assert.equal(await holds.extend({ ...yesterday, total: parse('0.001') }), 'extended')
  const today = await hold(holds, daily, 1_000n)
  assert.equal(await holds.extend({ ...yesterday, total: parse('0.002') }), 'key_limit_exceeded')
  assert.equal(await holds.extend({ ...today, total: parse('0.004') }), 'extended')
  await Promise.all([revoked, yesterday, today].map((placed) => holds.end(charge(placed, 1_500n))))
})

test('the cost of a search is in the ledger before its request ends, even if the end comes fast', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 5_000_000n)
  await Promise.all(Array.from({ length: 50 }, async () => search(holds, await hold(holds, payer, 1_000n))))
  const [row] = await ledger.database.query(
    `select count(*)::int as lines from requests r cross join jsonb_each(r.tool_calls)
      where r.account_id = $1`,
    [payer.accountId],
  )
  assert.deepEqual(row, { lines: 50 })
})

test('a refused request gets its row, with the reason and without money', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 0n)
  const requestId = createRequestId(payer.partition, Date.now())
  holds.refuse({
    requestId,
    payer,
    model: 'no "such" \\ model',
    stream: true,
    maxTokens: undefined,
    errorCode: 'model_not_found',
  })
  await holds.drained()
  const rows = await ledger.database.query(
    'select status, model, stream, charged, error_code from requests where id = $1',
    [requestId],
  )
  assert.deepEqual(rows, [
    { status: 'refused', model: 'no "such" \\ model', stream: true, charged: 0n, error_code: 'model_not_found' },
  ])
})

// Refusals cost nothing, so a client could fill the disk with them: a row each, and a row an hour for each name it invents.
test('beyond a hundred refusals a minute a key’s refusals are counted, not written, and invented models share one line', async () => {
  const { database } = ledger
  const holds = await openLedger(database)
  const payer = await openPayer(database, 0n)
  const other = await openPayer(database, 0n)
  const refuse = (by: typeof payer, model: string) =>
    holds.refuse({
      requestId: createRequestId(by.partition, Date.now()),
      payer: by,
      model,
      stream: false,
      maxTokens: undefined,
      errorCode: 'model_not_found',
    })
  const [began] = await database.query<{ minute: Date }>(`select date_trunc('minute', clock_timestamp()) as minute`)
  for (let turn = 0; turn < 5; turn += 1) {
    for (let count = 0; count < 100; count += 1) refuse(payer, count % 10 === 0 ? 'm' : `invented ${turn} ${count}`)
    refuse(other, 'm')
    await holds.drained()
  }
  const [ended] = await database.query<{ minute: Date }>(`select date_trunc('minute', clock_timestamp()) as minute`)
  const minutes = (ended!.minute.getTime() - began!.minute.getTime()) / 60_000 + 1
  const [rows] = await database.query<{ kept: number; others: number }>(
    `select count(*) filter (where account_id = $1)::int as kept, count(*) filter (where account_id = $2)::int as others
       from requests where account_id in ($1, $2)`,
    [payer.accountId, other.accountId],
  )
  assert.ok(rows!.kept >= 100 && rows!.kept <= 100 * minutes, `${rows!.kept} rows`)
  assert.equal(rows!.others, 5)
  const usage = await database.query<{ model: string; refused: number }>(
    `select model, sum(refused)::int as refused from usage_hours where account_id = $1 group by model order by model`,
    [payer.accountId],
  )
  assert.deepEqual(usage, [
    { model: '', refused: 450 },
    { model: 'm', refused: 50 },
  ])
})

// An account may have a thousand keys, and accounts are free.
test('an account logs at most a thousand refusals a minute over all its keys, and a hundred if it never deposited', async () => {
  const { database } = ledger
  const holds = await openLedger(database)
  const [funded, empty] = [await openPayer(database, 1n), await openPayer(database, 0n)]
  const [began] = await database.query<{ minute: Date }>(`select date_trunc('minute', clock_timestamp()) as minute`)
  for (let turn = 0; turn < 3; turn += 1) {
    for (const [payer, keys, times] of [
      [funded, 4, 90],
      [empty, 2, 30],
    ] as const) {
      const { partition, accountId } = payer
      for (let key = 0; key < keys; key += 1) {
        const keyId = await openKey(database, { partition, id: accountId })
        for (let count = 0; count < times; count += 1) {
          holds.refuse({
            requestId: createRequestId(partition, Date.now()),
            payer: { partition, accountId, keyId },
            model: 'm',
            stream: false,
            maxTokens: undefined,
            errorCode: 'model_not_found',
          })
        }
      }
    }
    await holds.drained()
  }
  const [ended] = await database.query<{ minute: Date }>(`select date_trunc('minute', clock_timestamp()) as minute`)
  const minutes = (ended!.minute.getTime() - began!.minute.getTime()) / 60_000 + 1
  for (const [{ accountId }, cap, refused] of [
    [funded, 1000, 1080],
    [empty, 100, 180],
  ] as const) {
    const [row] = await database.query<{ logged: number; counted: number }>(
      `select (select count(*)::int from requests where account_id = $1) as logged,
              (select sum(refused)::int from usage_hours where account_id = $1) as counted`,
      [accountId],
    )
    assert.ok(row!.logged >= cap && row!.logged <= cap * minutes, `${row!.logged} rows`)
    assert.equal(row!.counted, refused)
  }
})

test('a deposit is credited once, however often it is reported', async () => {
  const account = await createAccount(ledger.database, 'depositor', partitions)
  const deposit = {
    partition: account.partition,
    id: account.id,
    accountId: account.id,
    amount: parse('2.5'),
    source: 'test',
  }
  const credited = await Promise.all(Array.from({ length: 20 }, () => creditDeposit(ledger.database, deposit)))
  assert.equal(credited.filter(Boolean).length, 1)
  assert.equal((await findAccount(ledger.database, account.partition, account.id))?.gateway, 2_500_000n)
})

test('the ledger balances after a thousand concurrent requests on a hundred accounts are held, charged and voided', async () => {
  const holds = await openLedger(ledger.database)
  const payers = await Promise.all(Array.from({ length: 100 }, () => openPayer(ledger.database, 20_000n)))
  const charged = await Promise.all(
    Array.from({ length: 1_000 }, async (_, index) => {
      const placed = await hold(holds, payers[index % 100]!, BigInt(1_000 + (index % 7)))
      const end = await holds.end(index % 5 === 0 ? voided(placed) : charge(placed, BigInt(index % 1_000)))
      return end.charged
    }),
  )
  const accounts = await Promise.all(
    payers.map((payer) => findAccount(ledger.database, payer.partition, payer.accountId)),
  )
  const left = accounts.reduce((total, account) => total + account!.spendable, 0n)
  assert.equal(left + sum(charged), 100n * 20_000n)
})

test('one batch holds, refuses and ends requests of many partitions, each in its own', {
  skip: isOnCluster,
}, async (t) => {
  const { database, drop } = await testDatabase()
  atEnd(t, drop)
  const holds = await openLedger(database)
  const payers = await Promise.all(
    [0, 1, 17, 255, 256, 1023].map(async (partition) => {
      const id = randomUUID()
      await database.query('insert into accounts (partition, id, name) values ($1, $2, $3)', [partition, id, 'test'])
      const deposit = { partition, id: randomUUID(), accountId: id, amount: fromAtomic(10_000n), source: 'test' }
      await creditDeposit(database, deposit)
      return { partition, accountId: id, keyId: await openKey(database, { partition, id }) }
    }),
  )
  const calls = payers.map((payer) => holdCall(payer, 1_000n))
  const placed = helds(await Promise.all(calls.map((call) => holds.place(call))))
  // A reply that was lost: the same calls again get the same holds.
  const again = await Promise.all(calls.map((call) => holds.place(call)))
  assert.deepEqual(helds(again), placed)
  for (const payer of payers) {
    const requestId = createRequestId(payer.partition, Date.now())
    holds.refuse({ requestId, payer, model: 'm', stream: false, maxTokens: 1, errorCode: 'insufficient_balance' })
  }
  const ends = placed.map((one) => charge(one, 200n))
  await Promise.all(ends.map((end) => holds.end(end)))
  const ended = await Promise.all(ends.map((end) => holds.end(end)))
  assert.ok(ended.every(({ endedNow, charged }) => !endedNow && charged === 200n))
  await holds.drained()
  for (const table of ['requests', 'usage_hours']) {
    const rows = await database.query<{ partition: number; count: number }>(
      `select r.partition, count(distinct r.account_id)::int as count from ${table} r
         join accounts a on a.partition = r.partition and a.id = r.account_id group by r.partition order by r.partition`,
    )
    assert.deepEqual(
      rows,
      payers.map(({ partition }) => ({ partition, count: 1 })),
      table,
    )
  }
  assert.deepEqual(await findViolations(database), [])
})

// The planner assumes that new tables are empty, and that any index leads to few rows. With an index other than the primary key, each
// batch would read every account of the partition, or everything that an account has open. The plans of a worker are not seen from the
// coordinator.
test('however young its tables are, the ledger looks accounts, holds and requests up by their ids', {
  skip: isOnCluster,
}, async (t) => {
  const { database, drop } = await testDatabase()
  atEnd(t, drop)
  const holds = await openLedger(database)
  const payers = await Promise.all(Array.from({ length: 20 }, () => openPayer(database, 1_000_000n)))
  for (let turn = 0; turn < 12; turn += 1) {
    const placed = await Promise.all(payers.map((payer) => hold(holds, payer, 1_000n)))
    await Promise.all(placed.map((one) => holds.end(charge(one, 200n))))
  }
  let read = await indexReads(database)
  // The database reports its statistics with a delay.
  while (read.accounts_pkey! < 12 * payers.length) read = await indexReads(database)
  for (const index of ['accounts_by_address', 'holds_of_account', 'requests_other_account_id_id_idx']) {
    // The planner itself looks at the ends of an index now and then.
    assert.ok(read[index]! < payers.length, `${read[index]} entries of ${index} were read`)
  }
})

async function indexReads(database: Database): Promise<Readonly<Record<string, number>>> {
  const rows = await database.query<{ name: string; read: number }>(
    `select indexrelname as name, idx_tup_read::int as read from pg_stat_user_indexes
      where relname in ('accounts', 'holds', 'requests_other')`,
  )
  return Object.fromEntries(rows.map(({ name, read }) => [name, read]))
}
