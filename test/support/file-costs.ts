import { appendFileSync } from 'node:fs'
import { cpuMs } from './cpu.ts'

/** Set by `npm run test:measure`: gets a line of JSON for each test file. */
const { TEST_COSTS_FILE: costsFile } = process.env
let current: { readonly file: string; readonly beganMs: number } | undefined

/** The cost of this file is what the process uses until the next one begins, or until its end: hooks that stop services included. */
export function beginFile(file: string): void {
  if (costsFile === undefined) return
  if (current === undefined) process.on('exit', () => record(costsFile))
  else record(costsFile)
  current = { file, beganMs: cpuMs() }
}

function record(to: string): void {
  const { file, beganMs } = current!
  appendFileSync(to, `${JSON.stringify([file, cpuMs() - beganMs])}\n`)
}
