import { mkdirSync, writeFileSync } from 'node:fs'
import { cpus, totalmem } from 'node:os'
import { fileURLToPath } from 'node:url'

/** What a scenario measured. Results are committed: each names the machine, the versions and the day. */
export type Result = {
  readonly scenario: string
  readonly date: string
  readonly machine: string
  readonly node: string
  /** The fraction of the full length, if the run was shorter. */
  readonly scale?: number
  readonly rows: readonly Readonly<Record<string, string | number>>[]
}

export function writeResult(scenario: string, scale: number, rows: Result['rows']): void {
  const folder = fileURLToPath(new URL('./results/', import.meta.url))
  mkdirSync(folder, { recursive: true })
  const [cpu] = cpus()
  const result: Result = {
    scenario,
    date: new Date().toISOString(),
    machine: `${cpus().length} × ${cpu?.model ?? process.arch}, ${Math.round(totalmem() / 2 ** 30)} GiB, ${process.platform}-${process.arch}`,
    node: process.version,
    ...(scale !== 1 && { scale }),
    rows,
  }
  writeFileSync(`${folder}${scenario}.json`, `${JSON.stringify(result, null, 2)}\n`)
}
