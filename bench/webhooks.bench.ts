import { randomUUID } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { type Database, openDatabase } from '../src/db/database.ts'
import { startEmbeddedPostgres } from '../src/db/embedded-postgres.ts'
import { migrate } from '../src/db/migrate.ts'
import { setUnsettledCap } from '../src/ledger/accounts.ts'
import type { Payer } from '../src/ledger/hold-calls.ts'
import { Holds } from '../src/ledger/holds.ts'
import { renewLease } from '../src/ledger/nodes.ts'
import { parse } from '../src/money/usdc.ts'
import { startChild } from './parts/child.ts'
import type { DeadReceivers } from './parts/dead-receivers.ts'
import { holdAndEnd } from './parts/hold-and-end.ts'
import { createPayers } from './parts/payers.ts'
import { cpuMs, familyCpuMs } from './parts/process-usage.ts'
import { besideWithout, median, round } from './parts/rounds.ts'
import type { Bench } from './run.ts'
import { createEndpoints, measureService, startDeliverer } from './webhooks-service.ts'

const accounts = 1_000
const atOnce = 64
/** The fixed load, as a share of what the machine serves without endpoints. */
const fixedShare = 0.25
/** Requests that have begun and not ended at the fixed load. More means that the machine cannot serve it. */
const openMax = 5_000
const warmUpMs = 5_000
const roundMs = 8_000
const rounds = 5
/** No server listens on this port. */
const refusingUrl = 'http://127.0.0.1:9/'

/**
 * A thousand accounts whose webhook endpoint is dead, beside the same accounts without endpoints. Each end of a request is an event.
 * First whole requests to the service; then the ledger alone, at a fixed load that the machine can serve and at as much as it can, with
 * the deliverer in the process of the ledger's client, as in a web process. Each situation has a database of its own.
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
    const served = await measureService(failingUrl, progress, scale)
    const situations: Situation[] = []
    for (const [name, url, isOld] of [
      ['no endpoints', undefined, false],
      ['refuse connections, for an hour', refusingUrl, true],
      ['never answer, for an hour', silentUrl, true],
      ['answer 500, for an hour', failingUrl, true],
      ['answer 500, all since now', failingUrl, false],
    ] as const) {
      progress(`opening ${accounts} accounts: ${name}`)
      situations.push(await open({ serverUrl: postgres.url, name, endpointUrl: url, isOld }, stack))
    }
    const without = situations[0]!
    for (const situation of situations.toReversed()) await measure(situation, postmaster, warmUpMs * scale, undefined)
    const capacity = (await measure(without, postmaster, warmUpMs, undefined)).perSecond
    const loads = { fixed: capacity * fixedShare, full: undefined }
    const samples = new Map<string, Sample[]>()
    for (let turn = 1; turn <= Math.max(1, Math.round(rounds * scale)); turn += 1) {
      for (const [load, rate] of Object.entries(loads)) {
        for (const situation of situations) {
          progress(`round ${turn}, ${load} load: ${situation.name}`)
          const sample = await measure(situation, postmaster, roundMs, rate)
          samples.set(keyOf(load, situation), [...(samples.get(keyOf(load, situation)) ?? []), sample])
        }
      }
    }
    const rows = Object.keys(loads).flatMap((load) =>
      situations.map((situation) => ({
        load,
        endpoints: situation.name,
        ...tabulate(samples.get(keyOf(load, situation))!, samples.get(keyOf(load, without))!),
      })),
    )
    // Awaited here: the databases are closed when this function returns.
    const sizes = await Promise.all(situations.map(countRows))
    return [...served, ...rows, ...sizes]
  },
}

function keyOf(load: string, { name }: Situation): string {
  return `${load} ${name}`
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

type SituationTerms = {
  readonly serverUrl: string
  readonly name: string
  readonly endpointUrl: string | undefined
  /** The endpoints have failed for an hour, and are tried every quarter of an hour. Else none was tried yet. */
  readonly isOld: boolean
}

async function open(
  { serverUrl, name, endpointUrl, isOld }: SituationTerms,
  stack: AsyncDisposableStack,
): Promise<Situation> {
  const databaseName = `bench_${name.replaceAll(/\W+/g, '_')}`
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
  if (endpointUrl !== undefined) await createEndpoints(database, payers, endpointUrl, isOld)
  return { name, url: url.href, database, payers }
}

/** `rate`: requests per second. Undefined: as many as are served. */
async function measure(
  { database, url, payers }: Situation,
  postmaster: number,
  durationMs: number,
  rate: number | undefined,
): Promise<Sample> {
  const node = randomUUID()
  await renewLease(database, node, 3_600_000)
  const holds = new Holds({ database, node, priceVersion: 'bench', inFlightCap: parse('1') })
  let attempts = 0
  const job = startDeliverer(database, url, () => void (attempts += 1))
  const before = { node: cpuMs(process.pid), postgres: familyCpuMs(postmaster) }
  const latencies =
    rate === undefined ? await inTurn(holds, payers, durationMs) : await atRate(holds, payers, durationMs, rate)
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

/** As many as are served: each worker begins its next request when the last one has ended. Returns how long each took. */
async function inTurn(holds: Holds, payers: readonly Payer[], durationMs: number): Promise<number[]> {
  const latencies: number[] = []
  const endMs = performance.now() + durationMs
  const worker = async (seed: number) => {
    for (let turn = 0; performance.now() < endMs; turn += 1) {
      const beganMs = performance.now()
      await holdAndEnd(holds, payers[(turn * atOnce + seed) % payers.length]!)
      latencies.push(performance.now() - beganMs)
    }
  }
  await Promise.all(Array.from({ length: atOnce }, (_, seed) => worker(seed)))
  return latencies
}

/** A fixed load: requests begin by the clock, whether or not earlier ones have ended. Returns how long each took since it was due. */
async function atRate(holds: Holds, payers: readonly Payer[], durationMs: number, rate: number): Promise<number[]> {
  const latencies: number[] = []
  const open = new Set<Promise<void>>()
  const startedMs = performance.now()
  const request = async (payer: Payer, dueMs: number) => {
    await holdAndEnd(holds, payer)
    latencies.push(performance.now() - dueMs)
  }
  for (let next = 0; next < (rate * durationMs) / 1000; ) {
    for (; startedMs + (next * 1000) / rate <= performance.now(); next += 1) {
      const own = request(payers[next % payers.length]!, startedMs + (next * 1000) / rate)
      open.add(own)
      void own.then(() => open.delete(own))
    }
    if (open.size > openMax) throw new Error(`${openMax} requests are open: the machine does not serve this load.`)
    await sleep(1)
  }
  await Promise.all(open)
  return latencies
}

function tabulate(own: readonly Sample[], without: readonly Sample[]) {
  const of = (read: (sample: Sample) => number) => round(median(own.map(read)))
  return {
    ...besideWithout(own, without, {
      per_second: ({ perSecond }) => perSecond,
      p50_ms: ({ p50 }) => p50,
      p99_ms: ({ p99 }) => p99,
      node_cpu_us: ({ nodeUs }) => nodeUs,
      postgres_cpu_us: ({ postgresUs }) => postgresUs,
    }),
    attempts: of(({ attempts }) => attempts),
    heap_mib: of(({ heapMiB }) => heapMiB),
  }
}

async function countRows({ name, database }: Situation) {
  const [rows] = await database.query<{ events: number; deliveries: number }>(
    'select (select count(*)::int from events) as events, (select count(*)::int from webhook_deliveries) as deliveries',
  )
  return { endpoints: name, event_rows: rows!.events, delivery_rows: rows!.deliveries }
}
