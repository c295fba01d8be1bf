import { parseArgs } from 'node:util'
import { bufferedBench } from './buffered.bench.ts'
import { citusBench } from './citus.bench.ts'
import { dashboardBench } from './dashboard.bench.ts'
import { growthBench } from './growth.bench.ts'
import { hostileBench } from './hostile.bench.ts'
import { ledgerBench } from './ledger.bench.ts'
import { nodesBench } from './nodes.bench.ts'
import { overloadBench } from './overload.bench.ts'
import { partitionsBench } from './partitions.bench.ts'
import { profileBench } from './profile.bench.ts'
import { type Result, writeResult } from './result.ts'
import { routerBench } from './router.bench.ts'
import { settlementBench } from './settlement.bench.ts'
import { signerBench } from './signer.bench.ts'
import { soakBench } from './soak.bench.ts'
import { startBench } from './start.bench.ts'
import { streamsBench } from './streams.bench.ts'
import { webhooksBench } from './webhooks.bench.ts'

/** A scenario measures something and returns one table of rows; what it prints on the way is progress. */
export type Bench = {
  readonly title: string
  /** Why it cannot be measured on this machine. */
  readonly problem?: () => string | undefined
  run(progress: (line: string) => void, settings: BenchSettings): Promise<Result['rows']>
}

/** The fraction of the full length, from `--scale`. */
export type BenchSettings = { readonly scale: number }

const benches: Readonly<Record<string, Bench>> = {
  ledger: ledgerBench,
  partitions: partitionsBench,
  citus: citusBench,
  buffered: bufferedBench,
  router: routerBench,
  nodes: nodesBench,
  overload: overloadBench,
  hostile: hostileBench,
  settlement: settlementBench,
  dashboard: dashboardBench,
  streams: streamsBench,
  growth: growthBench,
  start: startBench,
  soak: soakBench,
  profile: profileBench,
  signer: signerBench,
  webhooks: webhooksBench,
}

const { values: options, positionals } = parseArgs({ allowPositionals: true, options: { scale: { type: 'string' } } })
const [name, ...rest] = positionals
const scale = Number(options.scale ?? 1)
const bench = name === undefined ? undefined : benches[name]
if (bench === undefined || rest.length > 0 || !(scale > 0)) {
  console.error(
    `npm run bench <scenario> [-- --scale 0.2]\n\n${Object.entries(benches)
      .map(([key, { title }]) => `  ${key.padEnd(10)} ${title}`)
      .join('\n')}`,
  )
  process.exit(2)
}

const problem = bench.problem?.()
if (problem !== undefined) {
  console.error(`Not measured: ${problem}.`)
  process.exit(0)
}

const rows = await bench.run((line) => console.error(`  ${line}`), { scale })
console.table(rows)
writeResult(name!, scale, rows)
