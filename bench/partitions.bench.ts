import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Database, openDatabase } from '../src/db/database.ts'
import { startEmbeddedPostgres } from '../src/db/embedded-postgres.ts'
import { migrate } from '../src/db/migrate.ts'
import { setUnsettledCap } from '../src/ledger/accounts.ts'
import type { Payer } from '../src/ledger/hold-calls.ts'
import { parse } from '../src/money/usdc.ts'
import { onServer, withDatabase } from '../test/support/citus-cluster.ts'
import { loadLedger } from './parts/ledger-load.ts'
import { createPayers } from './parts/payers.ts'
import { familyCpuMs } from './parts/process-usage.ts'
import { median, round } from './parts/rounds.ts'
import type { Bench } from './run.ts'

const counts = [1, 64]
const loads = [16, 64, 512]
const accounts = 1000
const rounds = 9
const warmUpMs = 500
const measuredMs = 2_000

type Ledger = { readonly partitions: number; readonly database: Database; readonly payers: readonly Payer[] }
type Sample = { readonly perSecond: number; readonly p50: number; readonly postgresUs: number }

/** A ledger of 64 partitions beside a ledger of one, in one PostgreSQL with fsync on, round by round in turn. */
export const partitionsBench: Bench = {
  title: 'hold + end per second with one and with 64 partitions on one PostgreSQL',
  async run(progress, { scale }) {
    await using stack = new AsyncDisposableStack()
    const dataDir = mkdtempSync(join(tmpdir(), 'penny-bench-'))
    stack.defer(() => rmSync(dataDir, { recursive: true, force: true }))
    const postgres = await startEmbeddedPostgres({ dataDir })
    stack.defer(() => postgres.stop())
    const ledgers: Ledger[] = []
    for (const partitions of counts) {
      progress(`${accounts} accounts in ${partitions} partition${partitions === 1 ? '' : 's'}`)
      const database = await openLedger(postgres.url, partitions)
      stack.defer(() => database.close())
      ledgers.push({ partitions, database, payers: await createPayers(database, accounts, partitions) })
    }
    const samples = new Map<string, Sample[]>()
    for (let turn = 1; turn <= Math.max(1, Math.round(rounds * scale)); turn += 1) {
      for (const atOnce of loads) {
        progress(`round ${turn}: ${atOnce} at once`)
        // First and second in turn: what comes first finds a quieter disk.
        for (const ledger of turn % 2 === 1 ? ledgers : ledgers.toReversed()) {
          const taken = samples.get(keyOf(ledger, atOnce)) ?? []
          samples.set(keyOf(ledger, atOnce), [...taken, await measure(ledger, atOnce, postgres.pid)])
        }
      }
    }
    return loads.flatMap((atOnce) =>
      ledgers.map((ledger) => {
        const own = samples.get(keyOf(ledger, atOnce))!
        const one = samples.get(keyOf(ledgers[0]!, atOnce))!
        return {
          at_once: atOnce,
          partitions: ledger.partitions,
          per_second: Math.round(median(own.map(({ perSecond }) => perSecond))),
          'per_second/one': round(median(own.map(({ perSecond }, index) => perSecond / one[index]!.perSecond))),
          p50_ms: round(median(own.map(({ p50 }) => p50))),
          postgres_cpu_us: round(median(own.map(({ postgresUs }) => postgresUs))),
        }
      }),
    )
  },
}

function keyOf({ partitions }: Ledger, atOnce: number): string {
  return `${partitions} ${atOnce}`
}

async function openLedger(serverUrl: string, partitions: number): Promise<Database> {
  const name = `bench_${partitions}`
  await onServer(withDatabase(serverUrl, 'postgres'), (client) => client.query(`create database ${name}`))
  const database = openDatabase({ url: withDatabase(serverUrl, name), poolMax: 8, applicationName: 'bench' })
  await migrate(database, fileURLToPath(new URL('../migrations/', import.meta.url)))
  // Nothing is settled here.
  await setUnsettledCap(database, parse('1000000000'))
  return database
}

async function measure({ partitions, database, payers }: Ledger, atOnce: number, postgres: number): Promise<Sample> {
  let cpuBeforeMs = 0
  const onMeasuring = () => {
    cpuBeforeMs = familyCpuMs(postgres)
  }
  const spansPartitions = partitions > 1
  const load = { database, payers, atOnce, spansPartitions, warmUpMs, measuredMs, onMeasuring }
  const { per_second: perSecond, p50_ms: p50 } = await loadLedger(load)
  const pairs = (perSecond * measuredMs) / 1000
  return { perSecond, p50, postgresUs: ((familyCpuMs(postgres) - cpuBeforeMs) * 1000) / pairs }
}
