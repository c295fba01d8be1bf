import { appendFileSync, createWriteStream, writeFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { finished } from 'node:stream/promises'
import { run } from 'node:test'
import { spec } from 'node:test/reporters'
import { pathToFileURL } from 'node:url'
import { youngGeneration } from './child-environment.ts'
import failures from './failures-reporter.ts'
import { trackRunningTests } from './running-tests.ts'

// Like `node --test`, but files start in the given order. `node --test` sorts them by name, and a long file that starts last
// leaves the other cores idle.

export type RunSettings = {
  /** The files of a group share one process. */
  readonly groups: readonly (readonly string[])[]
  readonly concurrency: number
  readonly testMsMax: number
  /** Gets what failed, and nothing else. */
  readonly failuresFile: string
}

const slowestShown = 15

if (import.meta.main) await runFiles(JSON.parse(process.argv[2]!))

async function runFiles({ groups, concurrency, testMsMax, failuresFile }: RunSettings): Promise<void> {
  const stop = new AbortController()
  process.env.TEST_FAILURES_FILE = failuresFile
  const execArgv = [youngGeneration, `--import=${new URL('./test-process.ts', import.meta.url)}`]
  const programs = groups.map((files, index) =>
    files.length === 1 ? files[0]! : writeGroup(files, join(dirname(failuresFile), `group-${index + 1}.test.mjs`)),
  )
  const { TEST_NAME: name, TEST_NAME_SKIPPED: skipped } = process.env
  const tests = run({
    files: programs,
    concurrency,
    timeout: testMsMax,
    signal: stop.signal,
    execArgv,
    ...(name !== undefined && { testNamePatterns: name }),
    ...(skipped !== undefined && { testSkipPatterns: skipped }),
  })
  const running = trackRunningTests(tests)
  const startedMs = new Map<string, number>()
  const tookMs = new Map<string, number>()
  const files = new Set(groups.flat())
  const isFile = (name: string, nesting: number) => nesting === 0 && files.has(relative(process.cwd(), name))
  tests.on('test:dequeue', ({ name, nesting }) => isFile(name, nesting) && startedMs.set(name, Date.now()))
  tests.on('test:complete', ({ name, nesting }) => {
    if (isFile(name, nesting)) tookMs.set(name, Date.now() - startedMs.get(name)!)
  })
  tests.on('test:fail', ({ todo }) => {
    if (todo === undefined || todo === false) process.exitCode = 1
  })
  tests.on('test:summary', ({ counts, file }) => {
    if (file === undefined) writeFileSync(join(dirname(failuresFile), 'counts.json'), JSON.stringify(counts))
  })
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.on(signal, () => {
      // Into the failures too: they are the end of the output, and often the only part that is kept.
      const stopped = `${signal}: the run was stopped. These files had not ended:\n${running.describe()}\n`
      console.error(stopped)
      appendFileSync(failuresFile, `✖ ${stopped}`)
      process.exitCode = 1
      stop.abort()
    })
  }
  tests.compose(new spec()).pipe(process.stdout, { end: false })
  const kept = tests.compose(failures).pipe(createWriteStream(failuresFile, { flags: 'a' }))
  await Promise.all([finished(tests), finished(kept)])
  process.once('exit', () => console.log(slowest(tookMs)))
}

/** A program that runs the files one after the other, each as a suite: its hooks are its own, and a failure names it. */
function writeGroup(files: readonly string[], program: string): string {
  const suites = files.map((file) => {
    const { href } = pathToFileURL(resolve(file))
    const name = JSON.stringify(file)
    return `suite(${name}, async () => {
  before(() => beginFile(${name}))
  await import(${JSON.stringify(href)})
})`
  })
  const costs = JSON.stringify(new URL('./file-costs.ts', import.meta.url))
  const imports = ["import { before, suite } from 'node:test'", `import { beginFile } from ${costs}`]
  writeFileSync(program, [...imports, ...suites, ''].join('\n'))
  return program
}

function slowest(tookMs: ReadonlyMap<string, number>): string {
  const sorted = [...tookMs].sort(([, first], [, second]) => second - first).slice(0, slowestShown)
  const lines = sorted.map(([name, ms]) => `${(ms / 1000).toFixed(1).padStart(7)} s  ${relative(process.cwd(), name)}`)
  return ['\nSlowest files', ...lines].join('\n')
}
