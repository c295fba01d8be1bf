import { type ChildProcess, spawn } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { chmodSync, existsSync, globSync, mkdtempSync, readdirSync, readFileSync, rmSync, statfsSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { dirname, join, relative, resolve } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { openDatabase } from '../src/db/database.ts'
import { startEmbeddedPostgres } from '../src/db/embedded-postgres.ts'
import { check } from './check.ts'
import { postgres15 } from './postgres-versions.ts'
import { bundleService } from './support/bundle.ts'
import { compileCache } from './support/child-environment.ts'
import { CitusCluster, serverUrl, withDatabase } from './support/citus-cluster.ts'
import type { RunSettings } from './support/run-files.ts'

// `npm test`: the checks, then the tests on the embedded PostgreSQL. Beside it those of the ledger run on the oldest version that we
// promise to run on, divided into partitions. It must end in 10 minutes on two quiet cores, and in less than an hour on two starved ones.
// `npm run test:all` also runs the slow files, and each of the other databases and protocols by itself: before a release, and before
// a change to what they cover is handed in.

// Names of files run these alone; TEST_NAME is a pattern of the names of tests in them.

const root = fileURLToPath(new URL('..', import.meta.url))
const stopSignals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
const everything = ['src', 'gateway', 'sandbox', 'web/src', 'test'].map((folder) => `${folder}/**/*.test.ts`)
/** The check has run them. */
const partsOfCheck = ['test/tidy.test.ts', 'test/generated.test.ts']

/** They start whole services, browsers or engines, and take half of the time of all. */
const slow = [
  'test/browser/device.test.ts',
  'test/browser/first-steps.test.ts',
  'test/browser/funds.test.ts',
  'test/browser/long-log.test.ts',
  'test/browser/members.test.ts',
  'test/browser/models.test.ts',
  'test/browser/operator.test.ts',
  'test/browser/overview.test.ts',
  'test/browser/owner.test.ts',
  'test/browser/pages.test.ts',
  'test/browser/playground-settings.test.ts',
  'test/browser/playground-streams.test.ts',
  'test/browser/receipt.test.ts',
  'test/browser/settings.test.ts',
  'test/drills/{alerts,citus}.test.ts',
  'test/e2e/outside-database.test.ts',
  'test/e2e/recover.test.ts',
  'test/e2e/restore.test.ts',
  'test/e2e/sandbox-replay.test.ts',
  'test/e2e/stop.test.ts',
  'test/faults/webhooks.test.ts',
  'test/faults/x402.test.ts',
]

/** The longest files start first, so that no core is idle while the last one ends. The rest starts in this order of folders. */
const longest = [
  'test/faults/crash.test.ts',
  'test/contracts.test.ts',
  'test/browser/pages.test.ts',
  'test/e2e/stop.test.ts',
  'test/browser/playground.test.ts',
  'src/ledger/holds.model.test.ts',
  'src/db/embedded-postgres.test.ts',
  'test/settlement/crash.test.ts',
  'test/browser/routes.test.ts',
  'test/e2e/commands.test.ts',
  'test/e2e/start.test.ts',
  'test/settlement/circle.test.ts',
  'test/browser/newcomer.test.ts',
  'test/docs/guides.test.ts',
  'test/browser/money.test.ts',
  'test/e2e/paid-output.test.ts',
]
const longFolders = ['test/browser/', 'test/faults/', 'test/e2e/', 'test/settlement/', 'gateway/', 'test/']

/**
 * Files with a process each: they start processes or browsers, change what belongs to their process (environment, timers, signals),
 * or measure it. All others share processes, because to load the service takes a second of a core.
 */
const alone = [
  ...longest,
  'gateway/crash.test.ts',
  'src/chat/attempts.test.ts',
  'src/commands/{remote,stop-signal,with-database}.test.ts',
  'src/commands/verify.test.ts',
  'src/db/data-dir.test.ts',
  'src/db/database.test.ts',
  'src/http/parsing-turns.test.ts',
  'src/http/read-body.test.ts',
  'src/http/wasted-connections.test.ts',
  'src/jobs/every.test.ts',
  'src/observe/process-metrics.test.ts',
  'src/process/*.test.ts',
  'src/providers/upstream-deadlines.test.ts',
  'src/signer/signer-process.test.ts',
  'src/tools/page-process.test.ts',
  'src/tools/robots-rules.test.ts',
  'src/tools/safe-fetch.test.ts',
  'test/*.test.ts',
  'test/browser/*.test.ts',
  'test/docs/*.test.ts',
  'test/drills/*.test.ts',
  'test/e2e/{archive,device-login,doctor,failover,gateway,log,outside-database,recover,restart,restore}.test.ts',
  'test/e2e/{sandbox-replay,unusable-settings,web-only,web-processes}.test.ts',
  'test/faults/*.test.ts',
  'test/settlement/exit.test.ts',
  'test/support/*.test.ts',
]
/** Short enough that no core is idle while the last group ends. */
const groupFilesMax = 12

/** Tests wait for processes, timers and commits: with one file per core, two cores were idle for a quarter of the time. */
const concurrency = availableParallelism() + 1

const onDatabase = [
  'src/ledger/*.test.ts',
  'src/identity/*.test.ts',
  'src/db/migrate.test.ts',
  'gateway/settle.test.ts',
  'test/e2e/money.test.ts',
]

const onLedger = ['src/ledger/*.test.ts', 'src/jobs/*.test.ts', 'test/e2e/money.test.ts', 'test/e2e/retries.test.ts']

/** Every function of the ledger, and every migration, on an old and divided database. */
const onOldPartitions = ['src/ledger/*.test.ts', 'src/db/migrate.test.ts', 'gateway/settle.test.ts']

/** Everything that writes money or reads it for jobs, on a distributed database. */
const onCitus = [
  'src/ledger/*.test.ts',
  'src/identity/*.test.ts',
  'src/jobs/*.test.ts',
  'src/alerts/*.test.ts',
  'src/settlement/*.test.ts',
  'test/settlement/*.test.ts',
  'test/e2e/money.test.ts',
  'test/e2e/webhooks.test.ts',
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
const isLong = ['MODEL_STEPS', 'HAMMER_ATTEMPTS', 'FLAKY_CALLS', 'FAILOVER_REQUESTS', 'PAID_SEQUENCES'].some(
  (name) => process.env[name] !== undefined,
)

/** On a Citus cluster of two workers run the given files, `TEST_CITUS=1 node bin/run.mjs test/run.ts FILE…`, or those that must hold there. */
const isOnCitus = process.env.TEST_CITUS === '1'

/** Read by `support/examples.ts`. */
if (process.argv.includes('--all')) process.env.TEST_ALL = '1'
process.env.TEST_SEED ??= String(isLong || process.argv.includes('--all') ? randomInt(2 ** 31 - 1) : 1)

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

const [first, ...others] = process.argv.slice(2)
const isAll = first === '--all'
const only = first === undefined || isAll ? others : [first, ...others]
/** What failed, in words: the run ends with it, because the end is what is read and what is kept of a log. */
const failures: string[] = []
const isSuite = only.length === 0 && !isOnCitus
if (isSuite) failures.push(...(await check()).map((title) => `✖ npm run check: ${title}\n`))
await buildDashboard()
const leftOut = [...partsOfCheck, ...(isAll ? [] : sorted(slow))]
const chosen = isOnCitus && only.length === 0 ? onCitus : only
const files = chosen.length > 0 ? sorted(chosen) : sorted(everything).filter((file) => !leftOut.includes(file))
const runs = [run(isOnCitus ? 'Citus' : 'PostgreSQL 18', files, { concurrency, isAside: false })]
if (isSuite) runs.push(runOnOtherDatabases())
failures.push(...(await Promise.all(runs)).flat())
if (failures.length > 0) {
  console.log(`\n— What failed\n\n${failures.join('\n')}`)
  process.exitCode = 1
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

/** One after the other, and one file at a time. */
async function runOnOtherDatabases(): Promise<readonly string[]> {
  // The model has its twenty thousand steps on PostgreSQL 18; here it only has to meet every function.
  const environment = { MODEL_STEPS: '1000', ...(!isAll && { TEST_IS_ASIDE: '1' }) }
  const aside = { concurrency: 1, isAside: true }
  const partitioned = { ...environment, LEDGER_PARTITIONS: '8' }
  const packageRoot = await postgres15()
  const databases = isAll
    ? [
        ...(await run('PostgreSQL 15', sorted(onDatabase), { ...aside, packageRoot, environment })),
        ...(await run('a ledger of eight partitions', sorted(onLedger), { ...aside, environment: partitioned })),
      ]
    : await run('PostgreSQL 15, a ledger of eight partitions', sorted(onOldPartitions), {
        ...aside,
        packageRoot,
        environment: partitioned,
      })
  const protocol = { ...aside, environment: { TEST_UPSTREAM_PROTOCOL: 'chat-completions' } }
  return [...databases, ...(await run('an upstream of chat completions', sorted(onProtocol), protocol))]
}

function sorted(patterns: readonly string[]): readonly string[] {
  const files = patterns.flatMap((pattern) => {
    const found = globSync(pattern, { cwd: root, exclude: ['**/node_modules/**'] })
    if (found.length === 0) throw new Error(`No test file matches ${pattern}`)
    return found.map((file) => relative(root, resolve(root, file)))
  })
  const rank = (file: string) => {
    const place = longest.indexOf(file)
    if (place >= 0) return place
    const folder = longFolders.findIndex((name) => file.startsWith(name))
    return longest.length + (folder >= 0 ? folder : longFolders.length)
  }
  return [...new Set(files)].sort((first, second) => rank(first) - rank(second) || (first < second ? -1 : 1))
}

/** In the given order. A file of `alone` is a group by itself; files of one area need much the same modules. */
function grouped(files: readonly string[]): readonly (readonly string[])[] {
  const isAlone = new Set(sorted(alone))
  const areaOf = (file: string) => (file.startsWith('test/') ? dirname(file) : file.split('/')[0]!)
  const groups: string[][] = []
  const open = new Map<string, string[]>()
  for (const file of files) {
    const group = isAlone.has(file) ? undefined : open.get(areaOf(file))
    if (group !== undefined && group.length < groupFilesMax) {
      group.push(file)
      continue
    }
    const next = [file]
    groups.push(next)
    if (!isAlone.has(file)) open.set(areaOf(file), next)
  }
  return groups
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
  if (!options.isAside) console.log(`\n— Tests on ${title}\n`)
  const dataDir = mkdtempSync(join(tmpdir(), 'penny-test-run-'))
  const servers = isOnCitus ? await startCluster() : await startOne(dataDir, options.packageRoot)
  try {
    const environment = { ...process.env, ...options.environment, ...servers.environment }
    const failuresFile = join(dataDir, 'failures.txt')
    const { code, said } = await runTests({ groups: grouped(files), failuresFile, ...options }, environment)
    if (options.isAside) console.log(`\n— Tests on ${title}\n\n${said}`)
    if (code === 0) return []
    const named = existsSync(failuresFile) ? readFileSync(failuresFile, 'utf8') : ''
    return [`on ${title}, exit code ${code}:\n${named}`]
  } finally {
    await servers.stop()
    rmSync(dataDir, { recursive: true, force: true })
  }
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
