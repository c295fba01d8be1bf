import { appendFileSync } from 'node:fs'
import { cpuMs } from './cpu.ts'

/** Set by `npm run test:measure`: gets a line of JSON for each test file. */
const { TEST_COSTS_FILE: costsFile } = process.env
let current: { readonly file: string; readonly cpuMs: number; readonly wallMs: number } | undefined

/** The cost of this file is what the process uses until the next one begins, or until its end: hooks that stop services included. */
export function beginFile(file: string): void {
  if (costsFile === undefined) return
  if (current === undefined) process.on('exit', () => record(costsFile))
  else record(costsFile)
  current = { file, cpuMs: cpuMs(), wallMs: performance.now() }
}

function record(to: string): void {
  const { file, cpuMs: before, wallMs } = current!
  const cost = { file, cpuMs: cpuMs() - before, wallMs: Math.round(performance.now() - wallMs) }
  appendFileSync(to, `${JSON.stringify(cost)}\n`)
}
