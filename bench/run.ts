import { mkdirSync, writeFileSync } from 'node:fs'
import { cpus, totalmem } from 'node:os'
import { fileURLToPath } from 'node:url'
import { dashboardBench } from './dashboard.bench.ts'
import { ledgerBench } from './ledger.bench.ts'
import { overloadBench } from './overload.bench.ts'
import { signerBench } from './signer.bench.ts'

/** A scenario measures something and returns one table of rows; what it prints on the way is progress. */
export type Bench = {
  readonly title: string
  run(progress: (line: string) => void): Promise<readonly Readonly<Record<string, string | number>>[]>
}

const benches: Readonly<Record<string, Bench>> = {
  ledger: ledgerBench,
  overload: overloadBench,
  dashboard: dashboardBench,
  signer: signerBench,
}

const [name, ...rest] = process.argv.slice(2)
const bench = name === undefined ? undefined : benches[name]
if (bench === undefined || rest.length > 0) {
  console.error(
    `npm run bench <scenario>\n\n${Object.entries(benches)
      .map(([key, { title }]) => `  ${key.padEnd(10)} ${title}`)
      .join('\n')}`,
  )
  process.exit(2)
}

const rows = await bench.run((line) => console.error(`  ${line}`))
console.table(rows)
writeResults(name!, rows)

/** Results are committed: each names the machine, the versions and the day. */
function writeResults(scenario: string, table: readonly object[]): void {
  const folder = fileURLToPath(new URL('./results/', import.meta.url))
  mkdirSync(folder, { recursive: true })
  const [cpu] = cpus()
  const result = {
    scenario,
    date: new Date().toISOString(),
    machine: `${cpus().length} × ${cpu?.model ?? process.arch}, ${Math.round(totalmem() / 2 ** 30)} GiB, ${process.platform}-${process.arch}`,
    node: process.version,
    rows: table,
  }
  writeFileSync(`${folder}${scenario}.json`, `${JSON.stringify(result, null, 2)}\n`)
}
