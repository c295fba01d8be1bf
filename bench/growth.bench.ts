import { randomUUID } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Database, openDatabase } from '../src/db/database.ts'
import { startEmbeddedPostgres } from '../src/db/embedded-postgres.ts'
import { migrate } from '../src/db/migrate.ts'
import { setUnsettledCap } from '../src/ledger/accounts.ts'
import type { Payer } from '../src/ledger/hold-calls.ts'
import { Holds } from '../src/ledger/holds.ts'
import { renewLease } from '../src/ledger/nodes.ts'
import { parse } from '../src/money/usdc.ts'
import { holdAndEnd } from './parts/hold-and-end.ts'
import { familyCpuMs } from './parts/process-usage.ts'
import { median, round } from './parts/rounds.ts'
import type { Bench } from './run.ts'

const accounts = 1_000
const atOnce = 256
const batches = 32
const rowsMax = 10_000_000
const seededAtOnce = 500_000

/**
 * What a hold and its end cost PostgreSQL when the ledger has up to ten million rows in the tables of five months, compared with a new
 * ledger on a second server: batches go to both alternately, so a busy machine slows both.
 */
export const growthBench: Bench = {
  title: 'CPU of PostgreSQL per request as the ledger grows, beside a young ledger',
  async run(progress, { scale }) {
    const young = await openLedger()
    const growing = await openLedger()
    try {
      const rows = []
      for (let size = 1_000; size <= rowsMax * scale; size *= 10) {
        progress(`seeding up to ${size} rows`)
        await seed(growing.database, size)
        progress(`measuring at ${size} rows`)
        rows.push({ ledger_rows: size, ...(await compare(growing, young)) })
      }
      return rows
    } finally {
      await growing.close()
      await young.close()
    }
  },
}

type Ledger = {
  readonly database: Database
  readonly postmaster: number
  readonly payers: readonly Payer[]
  readonly holds: Holds
  close(): Promise<void>
}

async function openLedger(): Promise<Ledger> {
  const dataDir = mkdtempSync(join(tmpdir(), 'penny-bench-'))
  const postgres = await startEmbeddedPostgres({ dataDir })
  const database = openDatabase({ url: postgres.url, poolMax: 4, applicationName: 'bench', statementMaxMs: 600_000 })
  await migrate(database, fileURLToPath(new URL('../migrations/', import.meta.url)))
  await setUnsettledCap(database, parse('1000000000'))
  await createMonths(database)
  const node = randomUUID()
  await renewLease(database, node, 4 * 3_600_000)
  return {
    database,
    postmaster: Number(readFileSync(join(dataDir, 'postgres', 'postmaster.pid'), 'utf8').split('\n', 1)[0]),
    payers: await createPayers(database),
    holds: new Holds({ database, node, priceVersion: 'bench', inFlightCap: parse('1000') }),
    close: async () => {
      await database.close()
      await postgres.stop()
      rmSync(dataDir, { recursive: true, force: true })
    },
  }
}

async function createPayers(database: Database): Promise<readonly Payer[]> {
  await database.query(
    `insert into accounts (partition, id, name, gateway, deposited)
     select 0, gen_random_uuid(), 'bench', 1e12, 1e12 from generate_series(1, $1)`,
    [accounts],
  )
  const rows = await database.query<{ account_id: string; id: string }>(
    `insert into api_keys (partition, id, account_id, name, hint)
     select 0, gen_random_uuid(), a.id, 'bench', '…' from accounts a returning account_id, id`,
  )
  return rows.map((row) => ({ partition: 0, accountId: row.account_id, keyId: row.id }))
}

/** A table for each month that rows are seeded into, and for the present one. */
async function createMonths(database: Database): Promise<void> {
  await database.query(
    `select create_request_months(month + interval '1 month', 1)
       from generate_series(date_trunc('month', now() - interval '1 second' * $1), now() + interval '1 month', '1 month') as month`,
    [rowsMax],
  )
}

/** Ended requests, a second apart going back, spread over the accounts. An id begins with the time of its request. */
async function seed(database: Database, size: number): Promise<void> {
  const [{ present } = { present: 0 }] = await database.query<{ present: number }>(
    'select count(*)::int as present from requests',
  )
  for (let from = present; from < size; from += seededAtOnce) {
    await database.query(seedRows, [from, Math.min(from + seededAtOnce, size) - 1])
  }
  await database.execute('vacuum analyze')
  // Flushes the seeded rows to disk, so that the measurement does not include it.
  await database.execute('checkpoint')
}

const seedRows = `
  with payers as (select row_number() over () - 1 as n, count(*) over () as all_of_them, account_id, id as key_id from api_keys)
  insert into requests (partition, id, account_id, key_id, node, status, model, stream, max_tokens, price_version, created_at, ended_at,
                        entry, quote, from_credit, authorized, charged, prompt_tokens, completion_tokens, reasoning_tokens,
                        cached_tokens, usage_source, finish_reason, first_token_ms, total_ms)
    select 0, (lpad(to_hex((extract(epoch from t.at) * 1000)::bigint), 12, '0') || '70008000' || lpad(to_hex(g), 12, '0'))::uuid,
           p.account_id, p.key_id,
           '00000000-0000-0000-0000-000000000000', 'succeeded', 'gpt-5.6-terra', false, 300, 'bench', t.at, t.at, g, 1900, 1700, 200, 200,
           100, 20, 0, 0, 'upstream', 'stop', 10, 20
      from generate_series($1::bigint, $2::bigint) as g
      join payers p on p.n = g % p.all_of_them
     cross join lateral (select clock_timestamp() - interval '1 second' * g as at) t`

async function compare(growing: Ledger, young: Ledger) {
  const samples: { readonly grown: number; readonly young: number }[] = []
  for (let batch = 0; batch < batches; batch += 1) {
    const sample = { grown: await measure(growing, batch), young: await measure(young, batch) }
    // Warms up: the first batches find neither plans nor pages in memory.
    if (batch > 1) samples.push(sample)
  }
  return {
    postgres_cpu_us: round(median(samples.map(({ grown }) => grown))),
    young_cpu_us: round(median(samples.map((sample) => sample.young))),
    'cost/young': round(median(samples.map((sample) => sample.grown / sample.young))),
  }
}

/** CPU time of PostgreSQL for one request, in microseconds. */
async function measure({ postmaster, payers, holds }: Ledger, batch: number): Promise<number> {
  const before = familyCpuMs(postmaster)
  // Four rounds a sample: Linux counts in hundredths of a second.
  for (let turn = 0; turn < 4; turn += 1) {
    const some = Array.from(
      { length: atOnce },
      (_, index) => payers[(batch * 997 + turn * 251 + index) % payers.length]!,
    )
    await Promise.all(some.map((payer) => holdAndEnd(holds, payer)))
  }
  return ((familyCpuMs(postmaster) - before) * 1000) / (4 * atOnce)
}
