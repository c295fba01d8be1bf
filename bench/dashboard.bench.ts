import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Database, openDatabase } from '../src/db/database.ts'
import { startEmbeddedPostgres } from '../src/db/embedded-postgres.ts'
import { migrate } from '../src/db/migrate.ts'
import { createKey } from '../src/identity/api-keys.ts'
import { createAccount } from '../src/ledger/accounts.ts'
import { readBalance } from '../src/ledger/balance.ts'
import { earliestRequestId } from '../src/ledger/request-id.ts'
import { listRequests, type RequestFilter, readAllRequests, sumRequests } from '../src/ledger/request-log.ts'
import { readLatency, readRefusals, readUnsuccessfulCharges, readUsage } from '../src/ledger/usage.ts'
import { parse } from '../src/money/usdc.ts'
import type { Bench } from './run.ts'

// Requests of one account over thirty days. BENCH_ROWS=5000000 is the promised size.
const rowCount = Number(process.env.BENCH_ROWS ?? 300_000)
const runsPerQuestion = 40
const hourMs = 3_600_000
const dayMs = 24 * hourMs
const seedMsMax = 3_600_000

type Owner = { readonly partition: number; readonly accountId: string }

/** The queries of the dashboard's pages for an account with a long history. */
export const dashboardBench: Bench = {
  title: 'the questions behind log, charts and tiles on a long history (BENCH_ROWS, 300000 unless set)',
  async run(progress) {
    const dataDir = mkdtempSync(join(tmpdir(), 'penny-bench-'))
    const postgres = await startEmbeddedPostgres({ dataDir })
    const database = openDatabase({
      url: postgres.url,
      poolMax: 4,
      applicationName: 'bench',
      statementMaxMs: seedMsMax,
    })
    try {
      await migrate(database, fileURLToPath(new URL('../migrations/', import.meta.url)))
      progress(`seeding ${rowCount} requests`)
      const { owner, keyIds } = await seed(database)
      const rows = []
      for (const [question, ask] of questions(database, owner, keyIds)) rows.push(await measure(question, ask))
      progress('exporting everything')
      rows.push(await measureExport(database, owner))
      return rows
    } finally {
      await database.close()
      await postgres.stop()
      rmSync(dataDir, { recursive: true, force: true })
    }
  },
}

function questions(database: Database, owner: Owner, keyIds: readonly string[]): [string, () => Promise<unknown>][] {
  const now = Math.ceil(Date.now() / dayMs) * dayMs
  const middle = earliestRequestId(now - 15 * dayMs)
  const month = { from: new Date(now - 30 * dayMs), to: new Date(now), granularity: 'day' as const }
  const day = { from: new Date(now - 2 * dayMs), to: new Date(now - dayMs), granularity: 'hour' as const }
  const minutes = {
    from: new Date(now - 5 * dayMs),
    to: new Date(now - 5 * dayMs + 3 * hourMs),
    granularity: 'minute' as const,
  }
  const page = (filter: RequestFilter) => () => listRequests(database, owner, filter, { limit: 50 })
  const week = { from: new Date(now - 9 * dayMs - 1234), to: new Date(now - 2 * dayMs + 4321) }
  return [
    ['log, first page', page({})],
    ['log, a page in the middle', () => listRequests(database, owner, {}, { below: middle, limit: 50 })],
    ['log, failed only', page({ statuses: ['failed'] })],
    ['log, a rare error', page({ errorCodes: ['upstream_timeout'] })],
    ['log, one busy key', page({ keyIds: [keyIds[0]!] })],
    ['log, one quiet key', page({ keyIds: [keyIds.at(-1)!] })],
    ['log, several keys', page({ keyIds: keyIds.slice(3, 6) })],
    ['log, one model', page({ models: ['gpt-6-astra'] })],
    ['log, a model never used', page({ models: ['gpt-5.3-codex-spark'] })],
    ['log, with search', page({ hasSearch: true })],
    ['log, dear ones', page({ chargedMin: parse('0.05') })],
    ['log, a week, streams of one model', page({ ...week, stream: true, models: ['gpt-5.6-luna'] })],
    ['totals, everything', () => sumRequests(database, owner, {})],
    ['totals, a week of one key', () => sumRequests(database, owner, { ...week, keyIds: [keyIds[1]!] })],
    ['totals, failed', () => sumRequests(database, owner, { statuses: ['failed'] })],
    ['totals, dear ones (cut off)', () => sumRequests(database, owner, { chargedMin: parse('0.01') })],
    ['usage, a month by model', () => readUsage(database, owner, month, 'model')],
    ['usage, a month by key', () => readUsage(database, owner, month, 'key')],
    ['usage, a month by status', () => readUnsuccessfulCharges(database, owner, month)],
    ['usage, a day by hour', () => readUsage(database, owner, day, 'model')],
    ['usage, three hours by minute', () => readUsage(database, owner, minutes, 'model')],
    ['latency, a month', () => readLatency(database, owner, month, 'model')],
    ['latency, a day by hour', () => readLatency(database, owner, day, 'none')],
    ['refusals of a key', () => readRefusals(database, owner, keyIds[0]!)],
    ['balance', () => readBalance(database, owner)],
  ]
}

async function measure(question: string, ask: () => Promise<unknown>): Promise<Record<string, string | number>> {
  const times: number[] = []
  for (let run = 0; run < runsPerQuestion; run += 1) {
    const beganMs = performance.now()
    await ask()
    times.push(performance.now() - beganMs)
  }
  times.sort((a, b) => a - b)
  const at = (share: number) => Number(times[Math.floor(times.length * share)]!.toFixed(1))
  return { question, rows: rowCount, p50_ms: at(0.5), p95_ms: at(0.95) }
}

/** Downloads everything as a file. Its sum must equal the ledger's; otherwise the figures are meaningless. */
async function measureExport(database: Database, owner: Owner): Promise<Record<string, string | number>> {
  const beganMs = performance.now()
  let exported = 0n
  for await (const rows of readAllRequests(database, owner, {})) for (const row of rows) exported += row.charged
  const tookMs = performance.now() - beganMs
  const [ledger] = await database.query<{ charged: bigint }>(
    'select sum(charged)::bigint as charged from requests where account_id = $1',
    [owner.accountId],
  )
  if (ledger!.charged !== exported) throw new Error(`exported ${exported}, the ledger has ${ledger!.charged}`)
  return {
    question: 'export of everything, sum checked',
    rows: rowCount,
    p50_ms: Math.round(tookMs),
    p95_ms: Math.round(tookMs),
  }
}

/** Set-based: one statement each for requests, payments and hourly sums. The ledger does not balance. */
async function seed(database: Database): Promise<{ readonly owner: Owner; readonly keyIds: readonly string[] }> {
  const account = await createAccount(database, 'bench', 1)
  const owner = { partition: account.partition, accountId: account.id }
  const keyIds: string[] = []
  for (let index = 0; index < 10; index += 1) {
    keyIds.push((await createKey(database, { ...owner, name: `key ${index}` })).id)
  }
  const statements: [string, unknown[]][] = [
    [requestRows, [owner.partition, owner.accountId, keyIds, rowCount]],
    [paymentRows, []],
    [hourRows, []],
    // PostgreSQL does this by itself after a while. Without it there are no index-only scans.
    ['vacuum analyze', []],
  ]
  for (const [statement, values] of statements) await database.query(statement, values)
  return { owner, keyIds }
}

// The first key has nearly everything, the last one request in two thousand.
const requestRows = `
  insert into requests (partition, id, account_id, key_id, node, status, model, stream, max_tokens, price_version, created_at,
                        ended_at, entry, quote, from_credit, authorized, charged, search_cost, search_calls, prompt_tokens,
                        completion_tokens, reasoning_tokens, cached_tokens, usage_source, finish_reason, error_code,
                        first_token_ms, total_ms)
  select $1, (substr(d.digits, 1, 8) || '-' || substr(d.digits, 9, 4) || '-7000-8' || substr(md5(n::text), 1, 3) || '-' ||
              substr(md5(n::text), 4, 12))::uuid,
         $2, ($3::uuid[])[case when n % 2000 = 0 then 10 when n % 20 < 12 then 1 else 2 + n % 8 end], $2, s.status,
         (array['gpt-5.6-terra', 'gpt-5.6-luna', 'gpt-5.6-sol', 'gpt-6-astra'])[1 + n % 4], n % 3 = 0, 1000, 'bench', t.at,
         t.at + interval '1 second', case when q.quote > 0 then n end, q.quote, 0, q.quote, q.charged,
         case when n % 50 = 0 then q.charged / 2 else 0 end, case when n % 50 = 0 and q.charged > 0 then 1 else 0 end,
         100 + n % 900, 20 + n % 300, 0, 0, 'upstream', 'stop',
         case when s.status = 'succeeded' then null when n % 20011 = 0 then 'upstream_timeout' else 'upstream_error' end,
         100 + n % 700, 400 + n % 5000
    from generate_series(1, $4::int) n
    cross join lateral (select clock_timestamp() - interval '30 days' * (1 - n::float8 / $4) as at) t
    cross join lateral (select lpad(to_hex((extract(epoch from t.at) * 1000)::bigint), 12, '0') as digits) d
    cross join lateral (select case when n % 100 = 7 then 'failed' when n % 100 = 8 then 'cancelled' when n % 100 = 9
                               then 'refused' else 'succeeded' end as status) s
    cross join lateral (select case when s.status = 'refused' then 0 else 5000 + n % 90000 end as quote) b
    cross join lateral (select b.quote, case when s.status in ('failed', 'refused') then 0 else b.quote * 3 / 5 end as charged) q`

const paymentRows = `
  insert into payments (partition, account_id, number, first_entry, last_entry, value, epoch, state, tx_hash, created_at, authorized_at,
                        changed_at)
  select partition, account_id, entry / 100 + 1, min(entry), max(entry), sum(charged), 0, 'completed',
         sha256(convert_to((entry / 100)::text, 'utf8')), min(ended_at), min(ended_at), max(ended_at)
    from requests where entry is not null group by partition, account_id, entry / 100`

const hourRows = `
  insert into usage_hours
  select partition, account_id, date_trunc('hour', created_at, 'UTC'), key_id, model,
         count(*) filter (where status = 'succeeded'), count(*) filter (where status = 'failed'),
         count(*) filter (where status = 'cancelled'), count(*) filter (where status = 'refused'), sum(quote), sum(charged),
         sum(search_cost), sum(search_calls), 0, sum(prompt_tokens), sum(completion_tokens), 0, 0,
         count(first_token_ms), sum(first_token_ms), sum(total_ms)
    from requests group by 1, 2, 3, 4, 5`
