import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { openDatabase } from '../src/db/database.ts'
import { startEmbeddedPostgres } from '../src/db/embedded-postgres.ts'
import { migrate } from '../src/db/migrate.ts'
import { setUnsettledCap } from '../src/ledger/accounts.ts'
import { parse } from '../src/money/usdc.ts'
import { loadLedger } from './parts/ledger-load.ts'
import { createPayers } from './parts/payers.ts'
import { median, round } from './parts/rounds.ts'
import { extractTreeBefore } from './parts/tree-before.ts'
import type { Bench } from './run.ts'

const span = { spansPartitions: false, warmUpMs: 1_500, measuredMs: 6_000 }

const rounds = 3

/** One row for each number of accounts and of requests at once. */
type Measured = {
  readonly accounts: number
  readonly at_once: number
  readonly per_second: number
  readonly p50_ms: number
  readonly p99_ms: number
  readonly fsync: string
}

/** The ledger alone: a hold and its end for every request, each durable before the next step of that request. */
export const ledgerBench: Bench = {
  title: 'hold + end per second on a real PostgreSQL with fsync on, beside the ledger with a payment per request',
  async run(progress, settings) {
    const tree = extractTreeBefore()
    try {
      const before = await tree.load<{ readonly ledgerBench: Bench }>('bench/ledger.bench.ts')
      const now: Measured[][] = []
      const then: Measured[][] = []
      for (let turn = 1; turn <= rounds; turn += 1) {
        progress(`round ${turn} of ${rounds}`)
        then.push((await before.ledgerBench.run(progress, settings)) as unknown as Measured[])
        now.push(await measureLedger(progress))
      }
      return now[0]!.map(({ accounts, at_once, fsync }, index) => {
        const of = (name: 'per_second' | 'p50_ms' | 'p99_ms') => round(median(now.map((rows) => rows[index]![name])))
        const ratios = now.map((rows, turn) => rows[index]!.per_second / then[turn]![index]!.per_second)
        return {
          accounts,
          at_once,
          per_second: of('per_second'),
          p50_ms: of('p50_ms'),
          p99_ms: of('p99_ms'),
          fsync,
          'per_second/before': round(median(ratios)),
        }
      })
    } finally {
      tree.remove()
    }
  },
}

async function measureLedger(progress: (line: string) => void): Promise<Measured[]> {
  const dataDir = mkdtempSync(join(tmpdir(), 'penny-bench-'))
  const postgres = await startEmbeddedPostgres({ dataDir })
  const database = openDatabase({ url: postgres.url, poolMax: 8, applicationName: 'bench' })
  try {
    await migrate(database, fileURLToPath(new URL('../migrations/', import.meta.url)))
    // Nothing is settled here.
    await setUnsettledCap(database, parse('1000000000'))
    const [{ fsync } = { fsync: 'unknown' }] = await database.query<{ fsync: string }>('show fsync')
    const rows = []
    for (const accounts of [1, 1000]) {
      const payers = await createPayers(database, accounts)
      for (const atOnce of [64, 512]) {
        progress(`${accounts} account${accounts === 1 ? '' : 's'}, ${atOnce} at once`)
        rows.push({ accounts, at_once: atOnce, ...(await loadLedger({ database, payers, atOnce, ...span })), fsync })
      }
    }
    return rows
  } finally {
    await database.close()
    await postgres.stop()
    rmSync(dataDir, { recursive: true, force: true })
  }
}
