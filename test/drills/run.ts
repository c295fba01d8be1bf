import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { appendFileSync, existsSync, globSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type DrillRow, type DrillStep, tableVariable } from './drill.ts'

// `npm run drill`: every drill whole, with a line per step, then one table. `npm run drill -- rolling` runs the files whose name
// contains that word.

const root = fileURLToPath(new URL('../..', import.meta.url))
const words = process.argv.slice(2)
const files = globSync('test/drills/*.test.ts', { cwd: root }).sort()
const chosen = files.filter((file) => words.length === 0 || words.some((word) => file.includes(word)))
if (chosen.length === 0) throw new Error(`No drill matches ${words.join(' ')}. There are:\n${files.join('\n')}`)
const folder = mkdtempSync(join(tmpdir(), 'penny-drill-'))
const table = join(folder, 'table.jsonl')
const pollMs = 500
let printed = 0
const printer = setInterval(printSteps, pollMs)
try {
  // One after the other: they share ports, cores and apt's lock.
  for (const file of chosen) await runDrills(file)
  console.log(`\n${format(readRows())}`)
} finally {
  clearInterval(printer)
  rmSync(folder, { recursive: true, force: true })
}

/** The table has a row for what failed, also when the file ended before it could write one. */
async function runDrills(file: string): Promise<void> {
  const before = readRows().length
  const code = await runTest(file)
  printSteps()
  if (code === 0) return
  process.exitCode = 1
  if (
    readRows()
      .slice(before)
      .some(({ result }) => result.startsWith('FAILED'))
  )
    return
  const row: DrillRow = { engine: basename(file, '.test.ts'), tried: file, result: `FAILED: exit code ${code}` }
  appendFileSync(table, `${JSON.stringify(row)}\n`)
}

async function runTest(file: string): Promise<number> {
  const child = spawn(process.execPath, [join(root, 'test/run.ts'), file], {
    cwd: root,
    stdio: 'inherit',
    env: { ...process.env, [tableVariable]: table },
  })
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => child.kill(signal))
  const [code] = (await once(child, 'exit')) as [number | null]
  return code ?? 1
}

/** The test runner holds back what a test prints until it has ended. */
function printSteps(): void {
  const lines = readLines()
  for (const line of lines.slice(printed))
    if ('step' in line) console.log(`  ${line.engine}, ${line.seconds} s: ${line.step}`)
  printed = lines.length
}

function readRows(): readonly DrillRow[] {
  return readLines().filter((line) => 'result' in line)
}

function readLines(): readonly (DrillRow | DrillStep)[] {
  if (!existsSync(table)) return []
  // What follows the last line feed is still being written.
  const lines = readFileSync(table, 'utf8').split('\n').slice(0, -1)
  return lines.map((line) => JSON.parse(line) as DrillRow | DrillStep)
}

function format(rows: readonly DrillRow[]): string {
  const head = { engine: 'engine', tried: 'what was tried', result: 'result' }
  const width = (column: keyof DrillRow) => Math.max(...[head, ...rows].map((row) => row[column].length))
  const line = (row: DrillRow) =>
    `${row.engine.padEnd(width('engine'))}  ${row.tried.padEnd(width('tried'))}  ${row.result}`
  return [line(head), ...rows.map(line)].join('\n')
}
