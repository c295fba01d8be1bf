import assert from 'node:assert/strict'
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, afterEach, before } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import type { Browser, BrowserContext, Page } from 'playwright-core'
import type { Database } from '../../src/db/database.ts'
import { pennyProgram } from '../support/child-environment.ts'
import { testDatabase } from '../support/postgres.ts'
import { type ContextOptions, chromiumPath, launchBrowser, openContext } from './chromium.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
/** Only for a start that hangs: an exit is noticed immediately, and a start took more than a minute beside a load of 20. */
const readyMsMax = 5 * 60_000
/** Long, and only ever waited for by a test that fails: machines that run tests are busy. */
const waitMsMax = 60_000

/** A service as its customers start it, sandbox and all, in a process of its own. */
export type Dashboard = {
  readonly origin: string
  /** Ends in /v1. */
  readonly baseUrl: string
  /** Of the sandbox's demo account. */
  readonly apiKey: string
  readonly signInLink: string
  /** Its ledger, for what a test cannot wait for: time that passed, ten thousand requests. */
  readonly database: Database
  /** Runs a command beside the service, as its operator; anything but success fails the test. */
  penny(...words: readonly string[]): Promise<void>
  /** A page with an empty profile, closed after the test. What it complains about fails the file. */
  open(options?: ContextOptions): Promise<Page>
}

/** One service and one browser for the tests of a file. */
export function dashboardSuite(environment: Readonly<Record<string, string>> = {}): Dashboard {
  let started: Started | undefined
  let browser: Promise<Browser> | undefined
  const contexts: BrowserContext[] = []
  const complaints: string[] = []
  before(async () => {
    chromiumPath()
    started = await startCommand(environment)
  })
  // A page that stays open polls the service and draws for as long as the file runs.
  afterEach(async () => {
    for (const context of contexts.splice(0)) await context.close()
  })
  after(async () => {
    await (await browser)?.close()
    await started?.stop()
    assert.deepEqual(complaints, [], 'no page may complain: a refused script or style, an error nobody caught')
  })
  return {
    get origin() {
      return started!.baseUrl.slice(0, -'/v1'.length)
    },
    get baseUrl() {
      return started!.baseUrl
    },
    get apiKey() {
      return started!.apiKey
    },
    get signInLink() {
      return started!.signInLink
    },
    get database() {
      return started!.database
    },
    penny: (...words) => started!.penny(words),
    async open(options = {}) {
      browser ??= launchBrowser()
      const context = await openContext(await browser, options)
      contexts.push(context)
      const page = await context.newPage()
      page.setDefaultTimeout(waitMsMax)
      listen(page, complaints)
      return page
    },
  }
}

/** A request that is refused on purpose is logged by the browser itself; everything else that is logged is a fault. */
function listen(page: Page, complaints: string[]): void {
  page.on('pageerror', (error) => complaints.push(`${page.url()}: ${error.message}`))
  page.on('console', (message) => {
    if (message.type() !== 'error' || /Failed to load resource/.test(message.text())) return
    complaints.push(`${page.url()}: ${message.text()}`)
  })
}

type Started = {
  readonly baseUrl: string
  readonly apiKey: string
  readonly signInLink: string
  readonly database: Database
  penny(words: readonly string[]): Promise<void>
  stop(): Promise<void>
}

async function startCommand(environment: Readonly<Record<string, string>>): Promise<Started> {
  await buildDashboard()
  const ledger = await testDatabase()
  const dataDir = mkdtempSync(join(tmpdir(), 'penny-dashboard-'))
  const env = {
    ...process.env,
    PORT: '0',
    DATA_DIR: dataDir,
    DATABASE_URL: ledger.url,
    LOG_LEVEL: 'warn',
    NO_COLOR: '1',
    ...environment,
  }
  const command = spawn(process.execPath, [...pennyProgram(), 'start'], { env, stdio: ['ignore', 'ignore', 'pipe'] })
  let said = ''
  command.stderr!.on('data', (text) => {
    said += text
  })
  const stop = async () => {
    if (command.exitCode === null) {
      command.kill('SIGTERM')
      await once(command, 'exit')
    }
    await ledger.drop()
    rmSync(dataDir, { recursive: true, force: true })
  }
  await waitForFile(join(dataDir, 'sandbox.json'), command, () => said).catch(async (error: unknown) => {
    // A service that is left behind keeps this file's process open, and its database in use.
    await stop()
    throw error
  })
  const facts = JSON.parse(readFileSync(join(dataDir, 'sandbox.json'), 'utf8'))
  return {
    baseUrl: facts.base_url,
    apiKey: facts.api_key,
    signInLink: facts.dashboard_url,
    database: ledger.database,
    async penny(words) {
      await promisify(execFile)(process.execPath, [...pennyProgram(), ...words], { env })
    },
    stop,
  }
}

/** The test runner has built it already. */
async function buildDashboard(): Promise<void> {
  if (process.env.TEST_DATABASE_SERVER !== undefined) return
  const build = spawn(process.execPath, [join(root, 'web/build.ts'), '--if-stale'], { stdio: 'inherit' })
  const [code] = await once(build, 'exit')
  assert.equal(code, 0, 'the dashboard must build')
}

async function waitForFile(path: string, command: ChildProcess, said: () => string): Promise<void> {
  const deadline = Date.now() + readyMsMax
  while (!existsSync(path)) {
    assert.equal(command.exitCode, null, `the service stopped: ${said()}`)
    assert.ok(Date.now() < deadline, `the service is not ready: ${said()}`)
    await sleep(50)
  }
}
