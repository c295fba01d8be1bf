import { fileURLToPath } from 'node:url'
import { distributeLedger } from '../src/db/citus.ts'
import { type Database, openDatabase } from '../src/db/database.ts'
import { migrate } from '../src/db/migrate.ts'
import { setUnsettledCap } from '../src/ledger/accounts.ts'
import type { Payer } from '../src/ledger/hold-calls.ts'
import { parse } from '../src/money/usdc.ts'
import {
  CitusCluster,
  citusMissing,
  createOnAll,
  findCitus,
  onServer,
  serverUrl,
} from '../test/support/citus-cluster.ts'
import { loadLedger } from './parts/ledger-load.ts'
import { createPayers } from './parts/payers.ts'
import { familyCpuMs } from './parts/process-usage.ts'
import { median, round } from './parts/rounds.ts'
import type { Bench } from './run.ts'

const workerCounts = [0, 1, 2, 3]
const workersMax = 3
const partitions = 8
const accounts = 200
const loads = [16, 512]
const rounds = 3
const warmUpMs = 1_500
const measuredMs = 4_000

type Ledger = { readonly workers: number; readonly database: Database; readonly payers: readonly Payer[] }
type Sample = {
  readonly perSecond: number
  readonly p50: number
  readonly serversUs: number
  readonly clientUs: number
}

/**
 * The same ledger on plain PostgreSQL and on Citus with one, two and three workers, all on this machine, round by round in turn. Where the
 * cores are fewer than the servers nothing gets faster, and the CPU time per hold and end tells what the distribution costs.
 */
export const citusBench: Bench = {
  title: 'the ledger on Citus with one, two and three workers beside plain PostgreSQL',
  problem: () => (findCitus() === undefined ? citusMissing : undefined),
  async run(progress, { scale }) {
    await using stack = new AsyncDisposableStack()
    const cluster = stack.use(await CitusCluster.start(workersMax, { isDurable: true }))
    const ledgers: Ledger[] = []
    for (const workers of workerCounts) {
      progress(workers === 0 ? 'plain PostgreSQL' : `Citus with ${workers} worker${workers === 1 ? '' : 's'}`)
      const database = await openLedger(cluster, workers)
      stack.defer(() => database.close())
      ledgers.push({ workers, database, payers: await createPayers(database, accounts, partitions) })
    }
    const samples = new Map<string, Sample[]>()
    for (let turn = 1; turn <= Math.max(1, Math.round(rounds * scale)); turn += 1) {
      for (const atOnce of loads) {
        progress(`round ${turn}: ${atOnce} at once`)
        for (const ledger of ledgers) {
          const taken = samples.get(keyOf(ledger, atOnce)) ?? []
          samples.set(keyOf(ledger, atOnce), [...taken, await measure(cluster, ledger, atOnce)])
        }
      }
    }
    return loads.flatMap((atOnce) =>
      ledgers.map((ledger) => {
        const own = samples.get(keyOf(ledger, atOnce))!
        const plain = samples.get(keyOf(ledgers[0]!, atOnce))!
        const of = (read: (sample: Sample) => number) => round(median(own.map(read)))
        return {
          at_once: atOnce,
          subject: ledger.workers === 0 ? 'plain PostgreSQL' : `Citus, ${ledger.workers} of ${workersMax} workers`,
          per_second: of(({ perSecond }) => perSecond),
          'per_second/plain': round(median(own.map(({ perSecond }, index) => perSecond / plain[index]!.perSecond))),
          p50_ms: of(({ p50 }) => p50),
          servers_cpu_us: of(({ serversUs }) => serversUs),
          'servers_cpu/plain': round(median(own.map(({ serversUs }, index) => serversUs / plain[index]!.serversUs))),
          client_cpu_us: of(({ clientUs }) => clientUs),
        }
      }),
    )
  },
}

function keyOf({ workers }: Ledger, atOnce: number): string {
  return `${workers} ${atOnce}`
}

/** Each on the same coordinator; the first one without the extension. */
async function openLedger({ coordinator, workers: all }: CitusCluster, workers: number): Promise<Database> {
  const name = `bench_${workers}`
  const servers = [coordinator, ...all.slice(0, workers)].map(({ port }) => serverUrl(port))
  if (workers === 0) await onServer(servers[0]!, (client) => client.query(`create database ${name}`))
  else await createOnAll(servers, name)
  const url = serverUrl(coordinator.port, name)
  const database = openDatabase({ url, poolMax: 8, applicationName: 'bench' })
  await migrate(database, fileURLToPath(new URL('../migrations/', import.meta.url)))
  await distributeLedger(database, partitions)
  // Nothing is settled here.
  await setUnsettledCap(database, parse('1000000000'))
  return database
}

async function measure(cluster: CitusCluster, ledger: Ledger, atOnce: number): Promise<Sample> {
  const serversMs = () => cluster.servers.reduce((sum, { process }) => sum + familyCpuMs(process!.pid!), 0)
  const clientMs = () => {
    const { user, system } = process.cpuUsage()
    return (user + system) / 1000
  }
  let before = { servers: 0, client: 0 }
  const onMeasuring = () => {
    before = { servers: serversMs(), client: clientMs() }
  }
  const { database, payers, workers } = ledger
  const spansPartitions = workers === 0
  const load = { database, payers, atOnce, spansPartitions, warmUpMs, measuredMs, onMeasuring }
  const { per_second: perSecond, p50_ms: p50 } = await loadLedger(load)
  const pairs = (perSecond * measuredMs) / 1000
  return {
    perSecond,
    p50,
    serversUs: ((serversMs() - before.servers) * 1000) / pairs,
    clientUs: ((clientMs() - before.client) * 1000) / pairs,
  }
}
