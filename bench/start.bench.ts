import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { familyCpuMs } from './parts/process-usage.ts'
import { median, round } from './parts/rounds.ts'
import type { Bench } from './run.ts'

const rounds = 5
const mainFile = fileURLToPath(new URL('../src/main.ts', import.meta.url))

/** From the command to the line that says it is ready: in an empty folder, and in the one of the last start. */
export const startBench: Bench = {
  title: 'start-up of everything, cold and warm',
  async run(progress, { scale }) {
    const samples = { cold: [] as Sample[], warm: [] as Sample[] }
    for (let turn = 1; turn <= Math.max(1, Math.round(rounds * scale)); turn += 1) {
      progress(`round ${turn}`)
      const dataDir = mkdtempSync(join(tmpdir(), 'penny-bench-'))
      try {
        samples.cold.push(await start(dataDir))
        samples.warm.push(await start(dataDir))
      } finally {
        rmSync(dataDir, { recursive: true, force: true })
      }
    }
    return Object.entries(samples).map(([kind, all]) => ({
      start: kind,
      seconds: round(median(all.map(({ seconds }) => seconds))),
      cpu_seconds: round(median(all.map(({ cpuSeconds }) => cpuSeconds))),
    }))
  },
}

type Sample = { readonly seconds: number; readonly cpuSeconds: number }

async function start(dataDir: string): Promise<Sample> {
  const startedMs = performance.now()
  const child = spawn(process.execPath, [mainFile, 'start', '--json'], {
    stdio: ['ignore', 'pipe', 'ignore'],
    env: { ...process.env, PORT: '0', DATA_DIR: dataDir },
  })
  const exited = once(child, 'exit')
  await Promise.race([once(child.stdout, 'data'), exited])
  const sample = { seconds: (performance.now() - startedMs) / 1000, cpuSeconds: familyCpuMs(child.pid!) / 1000 }
  child.kill('SIGTERM')
  await exited
  return sample
}
