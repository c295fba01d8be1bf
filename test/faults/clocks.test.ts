import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { type TestContext, test } from 'node:test'
import { openDatabase } from '../../src/db/database.ts'
import { createKey } from '../../src/identity/api-keys.ts'
import { endOrphanedHolds } from '../../src/jobs/end-orphaned-holds.ts'
import { createAccount } from '../../src/ledger/accounts.ts'
import { creditDeposit } from '../../src/ledger/deposits.ts'
import { renewLease } from '../../src/ledger/nodes.ts'
import { fromAtomic, parse } from '../../src/money/usdc.ts'
import { atEnd } from '../support/at-end.ts'
import { assertBooksClosed } from '../support/audit.ts'
import { charge, codeOf, hold, openLedger, openPayer, place, voided } from '../support/ledger.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { until } from '../support/until.ts'
import { findOpenHolds } from './history.ts'
import type { NodeProcess } from './node-process.ts'
import { openStage } from './stage.ts'

// Wrong clocks: those of the nodes, which decide nothing, and the database's, which decides everything.

const hourMs = 3_600_000
/** A living node must not miss it on a busy machine: the others would end its holds. */
const leaseMs = 15_000

test('nodes whose clocks are hours ahead, hours behind, or jump: every charge is right, and every id is found everywhere', async (t) => {
  const ledger = await openTestDatabase(t)
  const clocks = [2 * hourMs, -2 * hourMs, 'jumps', 0] as const
  const stage = await openStage(t, {
    database: ledger.database,
    databaseUrl: ledger.url,
    nodes: clocks.map((clock) => ({ clock, leaseMs })),
    clients: 8,
  })
  await stage.untilAnswered(40)
  // When a node dies, the others end its holds and only those, whatever their own clocks say.
  const [ahead, behind, jumping, right] = stage.nodes as [NodeProcess, NodeProcess, NodeProcess, NodeProcess]
  stage.close(ahead)
  ahead.signal('SIGKILL')
  await ahead.exited
  await until(async () => (await findOpenHolds(ledger.database, ahead.id)).length === 0)
  await stage.untilAnswered(40)
  await stage.quiet()
  const ids = stage.seen.flatMap(({ whole, requestId }) => (whole ? [requestId!] : []))
  assert.equal(new Set(ids).size, ids.length)
  const interrupted = await ledger.database.query<{ node: string }>(
    "select distinct node from requests where error_code = 'interrupted'",
  )
  assert.deepEqual(
    interrupted.filter(({ node }) => node !== ahead.id),
    [],
  )
  await assertKeysGoByTheDatabase(ledger, [behind, jumping, right])
  await assertRetriesPayOnce(ledger, [right, behind, jumping])
  assert.deepEqual(await stage.end(), [])
  await assertBooksClosed(ledger.database)
})

/** An expired key is refused and a valid one accepted, by nodes whose clocks say the opposite. */
async function assertKeysGoByTheDatabase(ledger: TestDatabase, nodes: readonly NodeProcess[]): Promise<void> {
  const account = await openAccount(ledger)
  const key = (laterMs: number) =>
    createKey(ledger.database, {
      partition: account.partition,
      accountId: account.id,
      name: 'test',
      expiresAt: new Date(Date.now() + laterMs),
    })
  const [expired, fresh] = [await key(-hourMs), await key(hourMs)]
  for (const node of nodes) {
    const answers = [await ask(node, expired.secret), await ask(node, fresh.secret)]
    assert.deepEqual(
      answers.map(({ status }) => status),
      [401, 200],
    )
    const id = answers[1]!.headers.get('x-router-request-id')
    for (const other of nodes) {
      const found = await fetch(`http://127.0.0.1:${other.port}/api/requests/${id}`, {
        headers: { authorization: `Bearer ${fresh.secret}` },
      })
      assert.equal(found.status, 200)
    }
  }
}

/** The earlier attempt is the earlier one by the database's clock, whatever the clocks of the nodes say. */
async function assertRetriesPayOnce(ledger: TestDatabase, nodes: readonly NodeProcess[]): Promise<void> {
  const account = await openAccount(ledger)
  const { secret } = await createKey(ledger.database, {
    partition: account.partition,
    accountId: account.id,
    name: 'test',
  })
  for (const [attempt, node] of nodes.entries()) {
    const { status } = await ask(node, secret, { 'x-stainless-retry-count': String(attempt) })
    assert.equal(status, 200)
  }
  const charged = await ledger.database.query('select from requests where account_id = $1 and charged > 0', [
    account.id,
  ])
  assert.equal(charged.length, 1)
}

async function ask(node: NodeProcess, apiKey: string, headers: Record<string, string> = {}): Promise<Response> {
  const answer = await fetch(`http://127.0.0.1:${node.port}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ messages: [{ role: 'user', content: 'Say penny.' }], max_tokens: 100 }),
  })
  await answer.arrayBuffer()
  return answer
}

async function openAccount({ database }: TestDatabase) {
  const account = await createAccount(database, 'test', 1)
  await creditDeposit(database, { ...account, accountId: account.id, amount: parse('10'), source: 'test' })
  return account
}

test('the database’s clock jumps back: a lease lasts longer, a request still ends once, and a spent limit is not reset', async (t) => {
  const { database, setClock } = await openLedgerWithClock(t)
  const holds = await openLedger(database)
  const payer = await openPayer(database, 10_000n, { limit: fromAtomic(1_000n), limitWindow: 'day' })
  const [first, second] = [await hold(holds, payer, 400n), await hold(holds, payer, 500n)]
  await holds.end(charge(first, 400n))
  await setClock('-25 hours')
  assert.equal((await holds.end(charge(first, 400n))).endedNow, false)
  assert.equal(await endOrphanedHolds(database, holds), 0)
  assert.equal(codeOf(await place(holds, payer, 500n)), 'key_limit_exceeded')
  await holds.end(charge(second, 500n))
  assert.equal(codeOf(await place(holds, payer, 500n)), 'key_limit_exceeded')
  await holds.end(voided(await hold(holds, payer, 100n)))
  await assertBooksClosed(database)
})

test('the database’s clock jumps ahead: a living node renews its lease, and requests that were ended meanwhile stay ended', async (t) => {
  const { database, setClock } = await openLedgerWithClock(t)
  const [node, other] = [randomUUID(), randomUUID()]
  const holds = await openLedger(database, { node })
  const payer = await openPayer(database, 10_000n, { limit: fromAtomic(1_000n), limitWindow: 'day' })
  const [kept, lost] = [await hold(holds, payer, 400n), await hold(holds, payer, 500n)]
  await holds.end(charge(kept, 400n))
  await setClock('25 hours')
  await assert.rejects(place(holds, payer, 100n), { code: 'overloaded' })
  assert.equal(await endOrphanedHolds(database, await openLedger(database, { node: other })), 1)
  await renewLease(database, node, hourMs)
  assert.deepEqual(await holds.end(charge(lost, 500n)), { endedNow: false, status: 'failed', charged: 0n })
  // The limit's day changes with the database's clock.
  await holds.end(charge(await hold(holds, payer, 1_000n), 1_000n))
  await setClock('0')
  assert.equal(codeOf(await place(holds, payer, 100n)), 'key_limit_exceeded')
  await assertBooksClosed(database)
})

async function openTestDatabase(t: TestContext): Promise<TestDatabase> {
  const ledger = await testDatabase()
  atEnd(t, () => ledger.drop())
  return ledger
}

/** A database with a clock that can be set: its functions call `clock_timestamp()` and find ours before PostgreSQL's own. */
async function openLedgerWithClock(t: TestContext) {
  const ledger = await openTestDatabase(t)
  await ledger.database.execute(`
    create schema clock;
    create table clock.setting (ahead interval not null);
    insert into clock.setting values ('0');
    create function clock.clock_timestamp() returns timestamptz volatile language sql as
      'select pg_catalog.clock_timestamp() + ahead from clock.setting';
    do $$ begin execute format('alter database %I set search_path = clock, pg_catalog, public', current_database()); end $$`)
  const database = openDatabase({ url: ledger.url, poolMax: 4, applicationName: 'test' })
  atEnd(t, () => database.close())
  const setClock = async (ahead: string) => void (await database.query('update clock.setting set ahead = $1', [ahead]))
  return { database, setClock }
}
