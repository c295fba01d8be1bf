import { type ChildProcess, spawn } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { chmodSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statfsSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { openDatabase } from '../src/db/database.ts'
import { startEmbeddedPostgres } from '../src/db/embedded-postgres.ts'
import { check } from './check.ts'
import { postgres15 } from './postgres-versions.ts'
import { bundleService } from './support/bundle.ts'
import { compileCache } from './support/child-environment.ts'
import { CitusCluster, serverUrl, withDatabase } from './support/citus-cluster.ts'
import { writeCitusRun } from './support/citus-record.ts'
import { cpuMs } from './support/cpu.ts'
import { changedFiles, testsNear } from './support/near.ts'
import type { RunSettings } from './support/run-files.ts'
import { type Form, findTests, group, promisedTests, repeatedTests, testsOf, writeCosts } from './support/suite.ts'

// The test files on the embedded PostgreSQL, in one of these ways:
//
//   (none)            `npm test`: the checks, then every cheap file and every promise of docs/promises.md, in short form
//   --full            the other files, and the ledger on the oldest version of PostgreSQL that we promise, divided into partitions
//   --all             both, with more examples, and more files on the other databases: before a release
//   --near [COMMIT]   what is near the changes since that commit, by default since the branch left origin/main
//   --measure [FILE…] all, or these; writes what each costs to test/durations.json
//   FILE…             these; TEST_NAME is a pattern of the names of tests in them

const root = fileURLToPath(new URL('..', import.meta.url))
const stopSignals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

/** Tests wait for processes, timers and commits: with one file per core, two cores were idle for a quarter of the time. */
const concurrency = availableParallelism() + 1

/** Every function of the ledger, and every migration, on an old and divided database. */
const onOldPartitions = ['src/ledger/*.test.ts', 'src/db/migrate.test.ts', 'gateway/settle.test.ts']

/** What else depends on the version of the database, or on its partitions. */
const onOldPartitionsToo = [
  'src/identity/*.test.ts',
  'src/jobs/*.test.ts',
  'test/e2e/money.test.ts',
  'test/e2e/retries.test.ts',
]

/** Everything that writes money or reads it for jobs, on a distributed database. */
const onCitus = [
  'src/ledger/*.test.ts',
  'src/identity/*.test.ts',
  'src/jobs/*.test.ts',
  'src/alerts/*.test.ts',
  'src/settlement/*.test.ts',
  'test/settlement/*.test.ts',
  'test/e2e/money.test.ts',
  'src/api/webhooks.test.ts',
]

/** The core of the client suites, over the other upstream protocol too. */
const onProtocol = ['test/clients/openai.test.ts', 'test/clients/conformance.test.ts']

/** Ends a test that hangs and is blocked; `support/watchdog.ts` ends the other ones earlier. */
const testMsMax = 45 * 60_000
/** Several times what all of them take on two slow cores. A file that hangs ends earlier. */
const runMsMax = 150 * 60_000
/** The test files get this long to stop, and then again the services that they started. */
const stopMsMax = 5_000
const stopPollMs = 50
const dayMs = 24 * 60 * 60_000
/** A long form takes the time that it takes. */
const isLong = [
  'MODEL_STEPS',
  'HAMMER_ATTEMPTS',
  'FLAKY_CALLS',
  'FAILOVER_REQUESTS',
  'PAID_SEQUENCES',
  'UNPAID_SEQUENCES',
  'FUZZED_BODIES',
  'SIGNER_BATCHES',
].some((name) => process.env[name] !== undefined)

/** On a Citus cluster of two workers run the given files, `TEST_CITUS=1 node bin/run.mjs test/run.ts FILE…`, or those that must hold there. */
const isOnCitus = process.env.TEST_CITUS === '1'

const [way, ...operands] = process.argv.slice(2)
const forms: Readonly<Record<string, Form>> = { '--full': 'full', '--all': 'all' }
const form = forms[way ?? ''] ?? 'short'
/** Read by `support/examples.ts`. */
process.env.TEST_FORM ??= form
process.env.TEST_SEED ??= String(isLong || form === 'all' ? randomInt(2 ** 31 - 1) : 1)

/** Shared by all processes of all runs. Without it, each test file compiles the whole service again: a second of a core. */
process.env.NODE_COMPILE_CACHE ??= compileCache
process.env.TEST_SERVICE_PROGRAM ??= await bundleService()

/** What a tmpfs calls itself, and what the whole run leaves in its temporary folder at any time, several times over. */
const tmpfsType = 0x01021994
const memoryMin = 4 * 1024 ** 3

await using temporary = new AsyncDisposableStack()
const memory = folderInMemory()
if (memory !== undefined) {
  process.env.TMPDIR = memory
  temporary.defer(() => rmSync(memory, { recursive: true, force: true, maxRetries: 10 }))
}

/** What failed, in words: the run ends with it, because the end is what is read and what is kept of a log. */
const failures: string[] = []
const isSuite = way === undefined || forms[way] !== undefined
if (isSuite && !isOnCitus && form !== 'full')
  failures.push(...(await check()).map((title) => `✖ npm run check: ${title}\n`))
const checkedMs = cpuMs()
await buildDashboard()
const files = chooseFiles()
const runs = [
  run(isOnCitus ? 'Citus' : 'PostgreSQL 18', files, {
    // Beside the promises, which take longer.
    concurrency: isSuite && form === 'short' ? concurrency - 1 : concurrency,
    isAside: false,
    // `npm test` has run them.
    environment: form === 'full' ? { TEST_NAME_SKIPPED: repeatedTests().pattern } : {},
  }),
]
if (isSuite && !isOnCitus) runs.push(form === 'short' ? runPromises() : runOnOtherDatabases())
failures.push(...(await Promise.all(runs)).flat())
console.log(`\nCPU time: ${seconds(cpuMs())}, of which the checks took ${seconds(checkedMs)}`)
if (failures.length > 0) {
  console.log(`\n— What failed\n\n${failures.join('\n')}`)
  process.exitCode = 1
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(0)} s`
}

/**
 * Hundreds of databases are made and dropped. On a disk that takes a second each, in memory a twentieth of that. Machines without
 * such a folder use the disk.
 */
function folderInMemory(): string | undefined {
  try {
    const { type, bavail, bsize } = statfsSync('/dev/shm')
    if (type !== tmpfsType || bavail * bsize < memoryMin) return undefined
    for (const name of readdirSync('/dev/shm')) {
      const [, pid] = /^penny-tests-(\d+)-/.exec(name) ?? []
      // Left by a run that was killed.
      if (pid !== undefined && !existsSync(`/proc/${pid}`))
        rmSync(join('/dev/shm', name), { recursive: true, force: true })
    }
    const folder = mkdtempSync(`/dev/shm/penny-tests-${process.pid}-`)
    // As open as the system's own: PostgreSQL has a user of its own.
    chmodSync(folder, 0o1777)
    return folder
  } catch {
    return undefined
  }
}

function chooseFiles(): readonly string[] {
  if (isSuite) return isOnCitus ? findTests(onCitus) : testsOf(form)
  if (way === '--near') return testsNear(changedFiles(operands[0]))
  if (way === '--measure') return operands.length > 0 ? findTests(operands) : findTests()
  return findTests([way!, ...operands])
}

/** Beside the other files: a third of the time these wait for processes and browsers. */
function runPromises(): Promise<readonly string[]> {
  const { files, pattern } = promisedTests()
  return run('PostgreSQL 18, the promises', files, { concurrency, isAside: true, environment: { TEST_NAME: pattern } })
}

/** One after the other, and one file at a time. */
async function runOnOtherDatabases(): Promise<readonly string[]> {
  const aside = { concurrency: 1, isAside: true }
  const patterns = form === 'all' ? [...onOldPartitions, ...onOldPartitionsToo] : onOldPartitions
  return [
    ...(await run('PostgreSQL 15, a ledger of eight partitions', findTests(patterns), {
      ...aside,
      packageRoot: await postgres15(),
      // They have drawn more examples on PostgreSQL 18; here they only have to reach every statement.
      environment: { LEDGER_PARTITIONS: '8', TEST_FORM: 'short' },
    })),
    ...(await run('an upstream of chat completions', findTests(onProtocol), {
      ...aside,
      environment: { TEST_UPSTREAM_PROTOCOL: 'chat-completions' },
    })),
  ]
}

async function buildDashboard(): Promise<void> {
  const [code] = await once(
    spawn(process.execPath, ['web/build.ts', '--if-stale'], { cwd: root, stdio: 'inherit' }),
    'exit',
  )
  if (code !== 0) failures.push('✖ the dashboard does not build\n')
}

type RunOptions = {
  readonly concurrency: number
  /** Runs beside another run: what it prints is printed when it has ended, in one piece. */
  readonly isAside: boolean
  readonly packageRoot?: string
  readonly environment?: Readonly<Record<string, string>>
}

/** What failed of it: nothing, or one text that names the run and each test. */
async function run(title: string, files: readonly string[], options: RunOptions): Promise<readonly string[]> {
  if (files.length === 0) {
    console.log('No test is near the changes.')
    return []
  }
  if (!options.isAside) console.log(`\n— Tests on ${title}\n`)
  const dataDir = mkdtempSync(join(tmpdir(), 'penny-test-run-'))
  const servers = isOnCitus ? await startCluster() : await startOne(dataDir, options.packageRoot)
  try {
    const environment: NodeJS.ProcessEnv = { ...process.env, ...options.environment, ...servers.environment }
    const failuresFile = join(dataDir, 'failures.txt')
    const costsFile = join(dataDir, 'costs.jsonl')
    if (way === '--measure') environment.TEST_COSTS_FILE = costsFile
    const groups = group(files, form)
    const { code, said } = await runTests({ groups, failuresFile, ...options }, environment)
    if (options.isAside) console.log(`\n— Tests on ${title}\n\n${said}`)
    if (way === '--measure') writeCosts(readCosts(costsFile))
    if (isOnCitus && isSuite) await recordCitusRun(servers.environment.TEST_DATABASE_SERVER!, dataDir)
    if (code === 0) return []
    const named = existsSync(failuresFile) ? readFileSync(failuresFile, 'utf8') : ''
    return [`on ${title}, exit code ${code}:\n${named}`]
  } finally {
    await servers.stop()
    rmSync(dataDir, { recursive: true, force: true })
  }
}

/** A run that was stopped leaves no counts, and no record. */
async function recordCitusRun(server: string, dataDir: string): Promise<void> {
  const countsFile = join(dataDir, 'counts.json')
  if (!existsSync(countsFile)) return
  const database = openDatabase({ url: server, poolMax: 1, applicationName: 'tests' })
  const [versions] = await database.query<{ citus: string; postgres: string }>(
    `select default_version as citus, current_setting('server_version') as postgres from pg_available_extensions where name = 'citus'`,
  )
  await database.close()
  const { passed } = JSON.parse(readFileSync(countsFile, 'utf8')) as { passed: number }
  const failed = readFileSync(join(dataDir, 'failures.txt'), 'utf8').matchAll(/^✖ (.*)$/gm)
  writeCitusRun({
    date: new Date().toISOString().slice(0, 10),
    ...versions!,
    workers: 2,
    passed,
    failed: [...failed].map(([, title]) => title!),
  })
}

/** Every process of the run has written a line for each of its files. */
function readCosts(file: string): ReadonlyMap<string, number> {
  const lines = readFileSync(file, 'utf8').trimEnd().split('\n')
  return new Map(lines.map((line) => JSON.parse(line) as [string, number]))
}

type Servers = { readonly environment: Readonly<Record<string, string>>; stop(): Promise<void> }

async function startOne(dataDir: string, packageRoot: string | undefined): Promise<Servers> {
  const postgres = await startEmbeddedPostgres({ dataDir, packageRoot })
  await forgoDurability(postgres.url)
  const server = withDatabase(postgres.url, 'postgres')
  return { environment: { TEST_DATABASE_SERVER: server }, stop: () => postgres.stop() }
}

async function startCluster(): Promise<Servers> {
  const cluster = await CitusCluster.start(2, { isDurable: false })
  const [server, ...workers] = cluster.servers.map(({ port }) => serverUrl(port))
  const environment = {
    TEST_DATABASE_SERVER: server!,
    TEST_CITUS_WORKERS: workers.join(' '),
    LEDGER_PARTITIONS: process.env.LEDGER_PARTITIONS ?? '8',
  }
  return { environment, stop: () => cluster[Symbol.asyncDispose]() }
}

/** What these tests write is thrown away with the server. Those that kill a PostgreSQL, or fill its disk, start their own. */
async function forgoDurability(url: string): Promise<void> {
  const database = openDatabase({ url, poolMax: 1, applicationName: 'tests' })
  await database.execute('alter role current_user set synchronous_commit = off')
  await database.close()
}

type TestRun = Pick<RunSettings, 'groups' | 'failuresFile' | 'concurrency'> & Pick<RunOptions, 'isAside'>

/** The exit code of the test runner. A signal to this process stops the runner, and then its PostgreSQL. */
async function runTests(
  { groups, failuresFile, concurrency, isAside }: TestRun,
  environment: NodeJS.ProcessEnv,
): Promise<{ readonly code: number; readonly said: string }> {
  const settings: RunSettings = { groups, failuresFile, concurrency, testMsMax: isLong ? dayMs : testMsMax }
  const program = join(root, 'test/support/run-files.ts')
  const runner = spawn(process.execPath, [program, JSON.stringify(settings)], {
    cwd: root,
    stdio: isAside ? ['ignore', 'pipe', 'pipe'] : 'inherit',
    env: { ...environment, TEST_IS_LONG: isLong ? '1' : '0' },
    // A process group of its own, so that a stop can reach every test file.
    detached: true,
  })
  const closed = once(runner, 'close') as Promise<[number | null]>
  let stopped: Promise<void> | undefined
  const stop = (signal: NodeJS.Signals) => {
    stopped ??= stopRunner(runner, signal, closed)
  }
  const runTimer = setTimeout(stop, isLong ? dayMs : runMsMax, 'SIGTERM')
  for (const signal of stopSignals) process.on(signal, stop)
  let said = ''
  for (const stream of [runner.stdout, runner.stderr]) {
    stream?.on('data', (text) => {
      said += text
    })
  }
  const [code] = await closed
  clearTimeout(runTimer)
  await stopped
  for (const signal of stopSignals) process.off(signal, stop)
  return { code: code ?? 1, said }
}

/** The runner stops its test files. Then everything that they started is stopped, and killed when that takes too long. */
async function stopRunner(runner: ChildProcess, signal: NodeJS.Signals, closed: Promise<unknown>): Promise<void> {
  const signalGroup = (wanted: NodeJS.Signals | 0) => {
    try {
      return process.kill(-runner.pid!, wanted)
    } catch {
      // Nothing of it is left.
      return false
    }
  }
  runner.kill(signal)
  await Promise.race([closed, pause(stopMsMax)])
  signalGroup('SIGTERM')
  for (const deadline = Date.now() + stopMsMax; Date.now() < deadline && signalGroup(0); ) await pause(stopPollMs)
  signalGroup('SIGKILL')
}
