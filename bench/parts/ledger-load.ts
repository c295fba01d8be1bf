import { randomUUID } from 'node:crypto'
import type { Database } from '../../src/db/database.ts'
import type { Payer } from '../../src/ledger/hold-calls.ts'
import { Holds } from '../../src/ledger/holds.ts'
import { renewLease } from '../../src/ledger/nodes.ts'
import { parse } from '../../src/money/usdc.ts'
import { holdAndEnd } from './hold-and-end.ts'

export type LedgerLoad = {
  readonly database: Database
  readonly payers: readonly Payer[]
  readonly atOnce: number
  /** See `HoldsOptions`. */
  readonly spansPartitions: boolean
  readonly warmUpMs: number
  readonly measuredMs: number
  /** Called when the warm-up is over. */
  readonly onMeasuring?: () => void
}

export type LedgerLatencies = { readonly per_second: number; readonly p50_ms: number; readonly p99_ms: number }

/** Places and ends holds with `atOnce` concurrent workers. Each starts its next one as soon as the ledger has answered. */
export async function loadLedger(load: LedgerLoad): Promise<LedgerLatencies> {
  const { database, payers, atOnce, spansPartitions, warmUpMs, measuredMs } = load
  const node = randomUUID()
  await renewLease(database, node, 3_600_000)
  const holds = new Holds({ database, node, priceVersion: 'bench', inFlightCap: parse('1'), spansPartitions })
  const latencies: number[] = []
  const fromMs = performance.now() + warmUpMs
  const untilMs = fromMs + measuredMs
  const timer = setTimeout(() => load.onMeasuring?.(), warmUpMs)
  const worker = async (seed: number) => {
    for (let turn = seed; performance.now() < untilMs; turn += atOnce) {
      const beganMs = performance.now()
      await holdAndEnd(holds, payers[turn % payers.length]!)
      if (beganMs >= fromMs) latencies.push(performance.now() - beganMs)
    }
  }
  await Promise.all(Array.from({ length: atOnce }, (_, seed) => worker(seed)))
  clearTimeout(timer)
  latencies.sort((a, b) => a - b)
  const at = (share: number) => Number(latencies[Math.floor(latencies.length * share)]!.toFixed(1))
  return { per_second: Math.round(latencies.length / (measuredMs / 1000)), p50_ms: at(0.5), p99_ms: at(0.99) }
}
