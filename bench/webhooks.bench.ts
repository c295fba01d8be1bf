import { randomUUID } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { type Database, openDatabase } from '../src/db/database.ts'
import { startEmbeddedPostgres } from '../src/db/embedded-postgres.ts'
import { migrate } from '../src/db/migrate.ts'
import { deliverWebhooks } from '../src/jobs/deliver-webhooks.ts'
import { setUnsettledCap } from '../src/ledger/accounts.ts'
import type { Payer } from '../src/ledger/hold-calls.ts'
import { Holds } from '../src/ledger/holds.ts'
import { renewLease } from '../src/ledger/nodes.ts'
import { parse } from '../src/money/usdc.ts'
import { openSafePost } from '../src/tools/web-tools.ts'
import { createEndpoint } from '../src/webhooks/endpoints.ts'
import { startChild } from './parts/child.ts'
import type { DeadReceivers } from './parts/dead-receivers.ts'
import { holdAndEnd } from './parts/hold-and-end.ts'
import { createPayers } from './parts/payers.ts'
import { cpuMs, familyCpuMs } from './parts/process-usage.ts'
import { median, round } from './parts/rounds.ts'
import type { Bench } from './run.ts'

const accounts = 1_000
const atOnce = 64
/** Requests that each account ends per second. Each end is one event. */
const eventsPerSecond = 2
const warmUpMs = 5_000
const roundMs = 8_000
const rounds = 5
/** No server listens on this port. */
const refusingUrl = 'http://127.0.0.1:9/'

/**
 * A thousand accounts whose webhook endpoint is dead, at a fixed load, beside the same accounts without endpoints. The deliverer shares
 * the process with the ledger's client, as in a web process with the role `jobs`. Each situation has a database of its own.
 */
export const webhooksBench: Bench = {
  title: 'holds and ends of a thousand accounts whose webhook endpoints are dead, beside the same without endpoints',
  async run(progress, { scale }) {
    await using stack = new AsyncDisposableStack()
    const dataDir = mkdtempSync(join(tmpdir(), 'penny-bench-'))
    stack.defer(() => rmSync(dataDir, { recursive: true, force: true }))
    const postgres = await startEmbeddedPostgres({ dataDir })
    stack.defer(() => postgres.stop())
    const postmaster = Number(readFileSync(join(dataDir, 'postgres', 'postmaster.pid'), 'utf8').split('\n', 1)[0])
    const receivers = await startChild<object, DeadReceivers>(new URL('./parts/dead-receivers.ts', import.meta.url), {})
    stack.defer(() => receivers.stop())
    const { silentUrl, failingUrl } = receivers.ready
    const situations: Situation[] = []
    for (const [name, url] of [
      ['no endpoints', undefined],
      ['refuse connections', refusingUrl],
      ['never answer', silentUrl],
      ['answer 500', failingUrl],
    ] as const) {
      progress(`opening ${accounts} accounts: ${name}`)
      situations.push(await open(postgres.url, name, url, stack))
    }
    const samples = new Map<Situation, Sample[]>(situations.map((situation) => [situation, []]))
    for (const situation of situations) await measure(situation, postmaster, warmUpMs * scale)
    for (let turn = 1; turn <= Math.max(1, Math.round(rounds * scale)); turn += 1) {
      for (const situation of situations) {
        progress(`round ${turn}: ${situation.name}`)
        samples.get(situation)!.push(await measure(situation, postmaster, roundMs))
      }
    }
    // Awaited here: the databases are closed when this function returns.
    return await Promise.all(situations.map((situation) => tabulate(situation, situations[0]!, samples)))
  },
}

type Situation = {
  readonly name: string
  readonly url: string
  readonly database: Database
  readonly payers: readonly Payer[]
}

type Sample = {
  readonly perSecond: number
  readonly p50: number
  readonly p99: number
  readonly attempts: number
  readonly nodeUs: number
  readonly postgresUs: number
  readonly heapMiB: number
}

async function open(
  serverUrl: string,
  name: string,
  endpointUrl: string | undefined,
  stack: AsyncDisposableStack,
): Promise<Situation> {
  const databaseName = `bench_${name.replaceAll(' ', '_')}`
  const server = openDatabase({ url: serverUrl, poolMax: 1, applicationName: 'bench' })
  await server.execute(`create database ${databaseName}`)
  await server.close()
  const url = new URL(serverUrl)
  url.pathname = `/${databaseName}`
  const database = openDatabase({ url: url.href, poolMax: 8, applicationName: 'bench' })
  stack.defer(() => database.close())
  await migrate(database, fileURLToPath(new URL('../migrations/', import.meta.url)))
  await setUnsettledCap(database, parse('1000000000'))
  const payers = await createPayers(database, accounts)
  if (endpointUrl !== undefined)
    for (const { partition, accountId } of payers) {
      const terms = { url: endpointUrl, types: ['request.ended'], description: 'dead' } as const
      await database.transaction((connection) => createEndpoint(connection, { partition, accountId }, terms))
    }
  return { name, url: url.href, database, payers }
}

async function measure({ database, url, payers }: Situation, postmaster: number, durationMs: number): Promise<Sample> {
  const node = randomUUID()
  await renewLease(database, node, 3_600_000)
  const holds = new Holds({ database, node, priceVersion: 'bench', inFlightCap: parse('1') })
  let attempts = 0
  const job = deliverWebhooks({
    database,
    databaseUrl: url,
    post: openSafePost({ publicUrl: 'https://bench.invalid', version: 'bench', allowsLoopback: true }),
    onDisabled: () => {},
    onAttempt: () => void (attempts += 1),
    onError: (error) => console.error(error),
  })
  const before = { node: cpuMs(process.pid), postgres: familyCpuMs(postmaster) }
  const latencies = await atRate(holds, payers, durationMs)
  const used = { node: cpuMs(process.pid) - before.node, postgres: familyCpuMs(postmaster) - before.postgres }
  await job.stop()
  const requests = latencies.length
  latencies.sort((one, other) => one - other)
  const at = (share: number) => latencies[Math.floor(requests * share)]!
  return {
    perSecond: (requests / durationMs) * 1000,
    p50: at(0.5),
    p99: at(0.99),
    attempts,
    nodeUs: (used.node * 1000) / requests,
    postgresUs: (used.postgres * 1000) / requests,
    heapMiB: process.memoryUsage().heapUsed / 2 ** 20,
  }
}

/** A fixed load: each worker has a share of the accounts and keeps to its timetable. Returns how long each request took. */
async function atRate(holds: Holds, payers: readonly Payer[], durationMs: number): Promise<number[]> {
  const latencies: number[] = []
  const startedMs = performance.now()
  const everyMs = (atOnce * 1000) / (payers.length * eventsPerSecond)
  const worker = async (seed: number) => {
    for (let turn = 0; performance.now() < startedMs + durationMs; turn += 1) {
      const dueMs = startedMs + (turn + seed / atOnce) * everyMs
      if (dueMs > performance.now()) await sleep(dueMs - performance.now())
      const beganMs = performance.now()
      await holdAndEnd(holds, payers[(turn * atOnce + seed) % payers.length]!)
      latencies.push(performance.now() - beganMs)
    }
  }
  await Promise.all(Array.from({ length: atOnce }, (_, seed) => worker(seed)))
  return latencies
}

async function tabulate(situation: Situation, without: Situation, samples: ReadonlyMap<Situation, readonly Sample[]>) {
  const own = samples.get(situation)!
  const of = (read: (sample: Sample) => number) => round(median(own.map(read)))
  const ratio = (read: (sample: Sample) => number) =>
    round(median(own.map((sample, turn) => read(sample) / read(samples.get(without)![turn]!))))
  const [rows] = await situation.database.query<{ events: number; deliveries: number }>(
    'select (select count(*)::int from events) as events, (select count(*)::int from webhook_deliveries) as deliveries',
  )
  return {
    endpoints: situation.name,
    per_second: of(({ perSecond }) => perSecond),
    'per_second/without': ratio(({ perSecond }) => perSecond),
    p50_ms: of(({ p50 }) => p50),
    'p50/without': ratio(({ p50 }) => p50),
    p99_ms: of(({ p99 }) => p99),
    node_cpu_us: of(({ nodeUs }) => nodeUs),
    'node_cpu/without': ratio(({ nodeUs }) => nodeUs),
    postgres_cpu_us: of(({ postgresUs }) => postgresUs),
    'postgres_cpu/without': ratio(({ postgresUs }) => postgresUs),
    attempts: of(({ attempts }) => attempts),
    heap_mib: of(({ heapMiB }) => heapMiB),
    event_rows: rows!.events,
    delivery_rows: rows!.deliveries,
  }
}
