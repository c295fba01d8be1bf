import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { openDatabase } from '../src/db/database.ts'
import { startEmbeddedPostgres } from '../src/db/embedded-postgres.ts'
import { check } from './check.ts'
import { postgres15 } from './postgres-versions.ts'

// `npm test`: the checks, then every test on the embedded PostgreSQL, then those that touch a database on the oldest
// version that we promise to run on, and the ledger's on several partitions.

const root = fileURLToPath(new URL('..', import.meta.url))
const stopSignals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
const everything = ['src/**/*.test.ts', 'web/src/**/*.test.ts', 'test/**/*.test.ts']
const onDatabase = [
  'src/ledger/*.test.ts',
  'src/identity/*.test.ts',
  'src/db/migrate.test.ts',
  'src/db/schema-dump.test.ts',
  'src/gateway/settle.test.ts',
  'test/e2e/money.test.ts',
]

const onLedger = ['src/ledger/*.test.ts', 'src/jobs/*.test.ts', 'test/e2e/money.test.ts', 'test/e2e/retries.test.ts']

const testMsMax = 600_000
/** More than twice what all of them take on two slow cores. Then the runner names what it is still waiting for. */
const runMsMax = 45 * 60_000
const dayMs = 24 * 60 * 60_000
/** A long form takes the time that it takes. */
const isLong = ['MODEL_STEPS', 'HAMMER_ATTEMPTS', 'FLAKY_CALLS'].some((name) => process.env[name] !== undefined)

const only = process.argv.slice(2)
/** What failed, in words: the run ends with it, because the end is what is read and what is kept of a log. */
const failures = only.length === 0 ? (await check()).map((title) => `✖ npm run check: ${title}\n`) : []
failures.push(...(await run('PostgreSQL 18', only.length === 0 ? everything : only)))
if (only.length === 0) {
  // The model had its twenty thousand steps above; here it only has to meet every function.
  const environment = { MODEL_STEPS: '1000' }
  failures.push(...(await run('PostgreSQL 15', onDatabase, { packageRoot: await postgres15(), environment })))
  const partitioned = { ...environment, LEDGER_PARTITIONS: '8' }
  failures.push(...(await run('a ledger of eight partitions', onLedger, { environment: partitioned })))
}
if (failures.length > 0) {
  console.log(`\n— What failed\n\n${failures.join('\n')}`)
  process.exitCode = 1
}

type RunOptions = {
  readonly packageRoot?: string
  readonly environment?: Readonly<Record<string, string>>
}

/** What failed of it: nothing, or one text that names the run and each test. */
async function run(title: string, files: readonly string[], options: RunOptions = {}): Promise<readonly string[]> {
  console.log(`\n— Tests on ${title}\n`)
  const dataDir = mkdtempSync(join(tmpdir(), 'penny-test-run-'))
  const postgres = await startEmbeddedPostgres({ dataDir, packageRoot: options.packageRoot })
  await forgoDurability(postgres.url)
  const server = new URL(postgres.url)
  server.pathname = '/postgres'
  try {
    const environment = { ...process.env, ...options.environment, TEST_DATABASE_SERVER: server.href }
    const failuresFile = join(dataDir, 'failures.txt')
    const code = await runTests(files, failuresFile, environment)
    if (code === 0) return []
    const named = existsSync(failuresFile) ? readFileSync(failuresFile, 'utf8') : ''
    return [`on ${title}, exit code ${code}:\n${named}`]
  } finally {
    await postgres.stop()
    rmSync(dataDir, { recursive: true, force: true })
  }
}

/** What these tests write is thrown away with the server. Those that kill a PostgreSQL, or fill its disk, start their own. */
async function forgoDurability(url: string): Promise<void> {
  const database = openDatabase({ url, poolMax: 1, applicationName: 'tests' })
  await database.execute('alter role current_user set synchronous_commit = off')
  await database.close()
}

/** The exit code of the test runner. When this process is told to stop it stops the runner, and then its PostgreSQL. */
async function runTests(
  files: readonly string[],
  failuresFile: string,
  environment: NodeJS.ProcessEnv,
): Promise<number> {
  const limits = [`--test-timeout=${isLong ? dayMs : testMsMax}`, '--import=./test/support/watchdog.ts']
  const told = ['--test-reporter=spec', '--test-reporter-destination=stdout']
  const kept = ['--test-reporter=./test/support/failures-reporter.ts', `--test-reporter-destination=${failuresFile}`]
  const settings = ['--test', '--test-concurrency=2', ...told, ...kept, ...limits]
  const env = { ...environment, TEST_IS_LONG: isLong ? '1' : '0' }
  const timeout = isLong ? dayMs : runMsMax
  const runner = spawn(process.execPath, [...settings, ...files], { cwd: root, stdio: 'inherit', env, timeout })
  const stop = (signal: NodeJS.Signals) => void runner.kill(signal)
  for (const signal of stopSignals) process.on(signal, stop)
  const [code] = (await once(runner, 'exit')) as [number | null]
  for (const signal of stopSignals) process.off(signal, stop)
  return code ?? 1
}
