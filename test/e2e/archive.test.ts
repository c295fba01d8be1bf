import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { promisify } from 'node:util'
import { type Database, openDatabase } from '../../src/db/database.ts'
import { locateEmbeddedPostgres } from '../../src/db/embedded-postgres.ts'
import type { Payer } from '../../src/ledger/hold-calls.ts'
import { endOfMonth, monthOf, startOfMonth } from '../../src/ledger/month.ts'
import { createRequestId, formatRequestId } from '../../src/ledger/request-id.ts'
import { SmallDisk } from '../faults/small-disk.ts'
import { atEnd } from '../support/at-end.ts'
import { DashboardClient } from '../support/dashboard-client.ts'
import { charge, openLedger, place } from '../support/ledger.ts'
import { preparePenny } from '../support/penny-command.ts'
import { until } from '../support/until.ts'

// docs/runbooks/archive.md as an operator follows it: one service on real settlement, and every way a command can be interrupted. The
// tests build on each other, in the order of the runbook.

const penny = preparePenny()
const now = new Date()
const monthAgo = (count: number) => monthOf(new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - count, 1)))
const month = monthAgo(2)
const table = `requests_${month.replace('-', '_')}`
const file = join(penny.folder, 'month.jsonl')
const copy = join(penny.folder, 'copy')

let database: Database
/** Requests of the month, and one of the next month that was paid together with the last one. */
let [archived, kept]: readonly string[] = []

before(async () => {
  await start()
  const payer = await demoPayer()
  await database.query('select create_request_months($1, 2)', [endOfMonth(month)])
  const holds = await openLedger(database)
  const serve = async (count: number) => {
    const id = createRequestId(payer.partition, startOfMonth(monthAgo(count)).getTime() + 60_000)
    const decision = await place(holds, payer, 2_000n, id)
    assert.ok('hold' in decision)
    await holds.end(charge(decision.hold, 700n))
    return formatRequestId(id)
  }
  archived = await serve(2)
  await serve(2)
  ;[, kept] = await Promise.all([serve(2), serve(1)])
})
after(async () => {
  await stop()
  penny.remove()
})

async function start(): Promise<void> {
  await penny.start({ GATEWAY_BATCH_MS: '200', TRUST_PROXY: 'true' })
  const url = (await locateEmbeddedPostgres(penny.dataDir))!
  database = openDatabase({ url, poolMax: 4, applicationName: 'test' })
}

async function stop(): Promise<void> {
  await database.close()
  await penny.stop()
}

async function demoPayer(): Promise<Payer> {
  const [key] = await database.query<Payer>(
    `select k.partition, k.account_id as "accountId", k.id as "keyId" from api_keys k join accounts a on a.id = k.account_id
      where a.name = 'Sandbox demo'`,
  )
  return key!
}

const archive = (...words: readonly string[]) => penny.run(['archive', ...words])

async function countRows(): Promise<bigint> {
  const [row] = await database.query<{ count: bigint }>(
    'select count(*) as count from requests where id >= first_request_id($1) and id < first_request_id($2)',
    [startOfMonth(month), endOfMonth(month)],
  )
  return row!.count
}

async function isDropped(): Promise<boolean> {
  const [row] = await database.query<{ dropped_at: Date | null }>('select dropped_at from sealed_months')
  return row!.dropped_at !== null
}

async function rootOf(): Promise<string> {
  const { months } = await penny.json<{ months: readonly { root: string }[] }>(['archive'])
  return months[0]!.root
}

test('a month is sealed once the service has paid for it, also by two commands at once', async () => {
  assert.match((await archive()).stdout, /No month is sealed yet/)
  const early = await archive('export', month, file)
  assert.deepEqual([early.code, existsSync(file)], [1, false])
  assert.match(early.stderr, /is not sealed/)
  assert.equal((await archive('seal', '2026-13')).code, 2)
  assert.match((await archive('seal', monthOf(now))).stderr, /is not over/)
  // Until then it is not paid on chain, and says so.
  const results = await until(async () => {
    const both = await Promise.all([archive('seal', month), archive('seal', month)])
    for (const { code, stderr } of both)
      assert.ok(code === 0 || /not paid on chain|another command/.test(stderr), stderr)
    return both.some(({ code }) => code === 0) && both
  })
  assert.match(results.find(({ code }) => code === 0)!.stdout, /3 requests, 0\.0021 USDC charged/)
  const again = await archive('seal', month)
  assert.deepEqual([again.code, again.stdout.includes(await rootOf())], [0, true])
})

test('an export that finds the disk full leaves no file', async (t) => {
  const disk = await SmallDisk.mount(1)
  if ('refusal' in disk) {
    assert.notEqual(process.getuid?.(), 0, disk.refusal)
    t.diagnostic(`not shown on a real disk: ${disk.refusal}`)
    return
  }
  atEnd(t, () => disk.unmount())
  disk.fill()
  const target = join(disk.folder, 'month.jsonl')
  const { code, stderr } = await archive('export', month, target)
  assert.equal(code, 1)
  assert.match(stderr, /^penny: .*month\.jsonl cannot be written: ENOSPC/)
  assert.equal(existsSync(target), false)
})

test('what a killed export leaves does not verify and drops nothing; the next export is whole', async () => {
  const half = join(penny.folder, 'half.jsonl')
  await database.transaction(async (connection) => {
    await connection.execute(`lock table ${table} in access exclusive mode`)
    const child = penny.spawn(['archive', 'export', month, half])
    await until(() => existsSync(half) && statSync(half).size > 0)
    const exited = once(child, 'exit')
    child.kill('SIGKILL')
    await exited
  })
  const verified = await archive('verify', half)
  assert.equal(verified.code, 1)
  assert.match(verified.stdout, /the file is cut off/)
  const dropped = await archive('drop', month, half, '--yes')
  assert.equal(dropped.code, 1)
  assert.match(dropped.stderr, /is damaged .* Nothing was dropped/)
  assert.match((await archive('export', month, half)).stderr, /already exists/)

  const exported = await archive('export', month, file)
  assert.equal(exported.code, 0, exported.stderr)
  assert.match(exported.stdout, /3 requests, verified against the seal/)
  const piped = await archive('export', month, '-')
  assert.equal(piped.stdout, readFileSync(file, 'utf8'), 'it is the same whenever it is written')
  const proven = await archive('verify', file, '--root', await rootOf())
  assert.deepEqual([proven.code, /matches the sealed month/.test(proven.stdout)], [0, true])
})

test('a changed file, one of another root and one of another month are refused, and nothing is dropped', async () => {
  const changed = join(penny.folder, 'changed.jsonl')
  writeFileSync(changed, readFileSync(file, 'utf8').replace('"charged":"700"', '"charged":"701"'))
  const verified = await archive('verify', changed)
  assert.equal(verified.code, 1)
  assert.match(verified.stdout, /line 2: row 1 was changed/)
  assert.equal((await archive('drop', month, changed, '--yes')).code, 1)
  assert.equal((await archive('verify', file, '--root', '00'.repeat(32))).code, 1)
  assert.match((await archive('drop', monthAgo(1), file, '--yes')).stderr, new RegExp(`has the requests of ${month}`))
  assert.match((await archive('verify', join(penny.folder, 'none'))).stderr, /cannot be read: ENOENT/)
  const unasked = await archive('drop', month, file)
  assert.deepEqual([unasked.code, /Add --yes to confirm/.test(unasked.stderr)], [2, true])

  // A row that is changed in the database is found by the export: it is not what was sealed.
  const change = (amount: number) =>
    database.query(
      `update requests set max_tokens = max_tokens + $1 where id >= first_request_id($2)
      and id < first_request_id($3)`,
      [amount, startOfMonth(month), endOfMonth(month)],
    )
  await change(1)
  const other = join(penny.folder, 'other.jsonl')
  const exported = await archive('export', month, other)
  assert.deepEqual([exported.code, existsSync(other)], [1, false])
  assert.match(exported.stderr, /differ from those that were sealed/)
  await change(-1)
  assert.deepEqual([await countRows(), await isDropped()], [3n, false])
})

test('a drop killed before its commit drops nothing; of two concurrent drops, one succeeds', async () => {
  assert.equal((await penny.run(['backup', copy])).code, 0)
  await database.execute(`
    create function wait_for_test() returns trigger language plpgsql as
      $$ begin perform pg_advisory_xact_lock(4711); return new; end $$;
    create trigger wait_for_test before update on sealed_months for each row execute function wait_for_test()`)
  await database.transaction(async (connection) => {
    await connection.query('select pg_advisory_xact_lock(4711)')
    const child = penny.spawn(['archive', 'drop', month, file, '--yes'])
    // The rows are deleted by then, but for the commit.
    await until(() => isWaiting())
    const exited = once(child, 'exit')
    child.kill('SIGKILL')
    await exited
  })
  await until(async () => !(await isWaiting()))
  await database.execute('drop trigger wait_for_test on sealed_months; drop function wait_for_test')
  assert.deepEqual([await countRows(), await isDropped()], [3n, false])

  const both = await Promise.all([1, 2].map(() => archive('drop', month, file, '--yes')))
  assert.deepEqual(both.map(({ code }) => code).sort(), [0, 1], both.map(({ stderr }) => stderr).join(''))
  assert.match(both.find(({ code }) => code === 1)!.stderr, /was already dropped/)
  assert.deepEqual([await countRows(), await isDropped()], [0n, true])
  assert.match((await archive('export', month, `${file}.2`)).stderr, /was dropped/)
})

/** Whether a command is in the middle of its drop. */
async function isWaiting(): Promise<boolean> {
  const rows = await database.query(
    `select from pg_stat_activity where application_name = 'penny command' and query like 'update sealed_months%' and state <> 'idle'`,
  )
  return rows.length > 0
}

test('after the drop the ledger balances, and a request of that month is gone in every list and lookup', async () => {
  assert.equal((await penny.run(['audit'])).code, 0)
  const { base_url: baseUrl, api_key: apiKey } = penny.sandbox()
  const origin = baseUrl.slice(0, -'/v1'.length)
  const refusal = [410, 'request_archived']
  const client = new DashboardClient({ origin })
  const withKey = { authorization: `Bearer ${apiKey}` }
  assert.deepEqual(await client.refusal('GET', `/api/requests/${archived}`, undefined, withKey), refusal)
  assert.deepEqual(await client.refusal('GET', `/api/receipts/${archived}`), refusal)
  await client.post('/api/auth/local')
  assert.deepEqual(await client.refusal('GET', `/api/requests/${archived}`), refusal)
  assert.match((await penny.run(['receipt', archived!])).stderr, /are archived/)
  assert.match((await penny.run(['requests', 'get', archived!])).stderr, /are archived/)

  const chat = await penny.run(['chat', 'Hi', '--no-web'])
  assert.equal(chat.code, 0, chat.stderr)
  assert.equal((await penny.run(['audit'])).code, 0)
})

test('receipts of requests that stay are proven without the dropped ones, alone and in a bundle that says where it begins', async () => {
  const receipt = await penny.run(['receipt', kept!])
  assert.equal(receipt.code, 0, receipt.stderr)
  const single = join(penny.folder, 'receipt.json')
  writeFileSync(single, receipt.stdout)
  assert.equal((await penny.run(['verify', single])).code, 0)

  const bundle = join(penny.folder, 'receipts.jsonl')
  const exported = await penny.run(['receipts', 'export', bundle])
  assert.equal(exported.code, 0, exported.stderr)
  const [header] = readFileSync(bundle, 'utf8').split('\n')
  const { after: start } = JSON.parse(header!) as { after: { payment: string; entry: string; root: string } }
  assert.ok(Number(start.entry) >= 3)
  const verified = await penny.run(['verify', bundle])
  assert.equal(verified.code, 0, verified.stdout)
  assert.match(verified.stdout, new RegExp(`up to ${start.entry} are archived`))
  // The next payment is chained to the one that the bundle begins after.
  writeFileSync(bundle, readFileSync(bundle, 'utf8').replace(start.root, `0x${'00'.repeat(32)}`))
  assert.equal((await penny.run(['verify', bundle])).code, 1)
})

test('a backup from before the drop has the month again, under the same seal, and the same file drops it', async () => {
  const root = await rootOf()
  await stop()
  rmSync(penny.dataDir, { recursive: true })
  await promisify(execFile)('cp', ['-a', copy, penny.dataDir])
  await start()
  assert.deepEqual([await countRows(), await isDropped(), await rootOf()], [3n, false, root])
  assert.equal((await penny.run(['requests', 'get', archived!])).code, 0)
  const { code, stderr } = await archive('drop', month, file, '--yes')
  assert.equal(code, 0, stderr)
  assert.deepEqual([await countRows(), await isDropped()], [0n, true])
  assert.equal((await penny.run(['audit'])).code, 0)
})
