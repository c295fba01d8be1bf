import { type ChildProcess, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { sandboxClient } from '../../sandbox/client.ts'
import { type Database, openDatabase } from '../../src/db/database.ts'
import { startEmbeddedPostgres } from '../../src/db/embedded-postgres.ts'
import { createKey } from '../../src/identity/api-keys.ts'
import { createAccount, findAccount } from '../../src/ledger/accounts.ts'
import { requestDepositAddress } from '../../src/ledger/deposit-addresses.ts'
import { creditDeposit } from '../../src/ledger/deposits.ts'
import { parse } from '../../src/money/usdc.ts'
import { pinFamilies } from './pin.ts'
import { childrenNamed, cpuMs, familyCpuMs, memoryKiB } from './process-usage.ts'

/** The whole service as a customer's operator runs it, in processes of its own, with the bench's upstream behind it. */
export type ServiceProcess = {
  /** Ends in /v1. */
  readonly baseUrl: string
  readonly processes: number
  readonly database: Database
  readonly databaseUrl: string
  /** Of the first web process. */
  readonly pid: number
  /** A key for each account. */
  readonly apiKeys: readonly string[]
  /** CPU so far, in milliseconds, by process. */
  cpu(): Readonly<Record<ServicePart, number>>
  memoryKiB(): number
  /** Keeps the service with all its processes, and PostgreSQL, on one core. */
  pin(core: number): void
  /** Resolves when every payment of what was served so far is final on the chain. */
  settled(): Promise<void>
  stop(): Promise<void>
}

export type ServicePart = 'web' | 'postgres' | 'sign' | 'settle' | 'gateway' | 'sandbox'

export type ServiceOptions = {
  readonly upstreamUrl: string
  /** Whether signer, settlement, gateway and chain run too; else they are another machine's. */
  readonly settles: boolean
  readonly accounts: number
  /** Web processes on the one port; one if left out. */
  readonly processes?: number
  readonly environment?: Readonly<Record<string, string>>
  /** For `node`, before the program: `--cpu-prof` and its like. */
  readonly nodeOptions?: readonly string[]
}

const mainFile = fileURLToPath(new URL('../../src/main.ts', import.meta.url))
const balance = parse('500')
const readyMsMax = 120_000
const pollMs = 100

export async function startServiceProcess(options: ServiceOptions): Promise<ServiceProcess> {
  const dataDir = mkdtempSync(join(tmpdir(), 'penny-bench-'))
  const stack = new AsyncDisposableStack()
  stack.defer(() => rmSync(dataDir, { recursive: true, force: true }))
  try {
    const postgres = await startEmbeddedPostgres({ dataDir })
    stack.defer(() => postgres.stop())
    const database = openDatabase({ url: postgres.url, poolMax: 4, applicationName: 'bench' })
    stack.defer(() => database.close())
    const { child, baseUrl } = await start(options, dataDir, postgres.url)
    stack.defer(() => end(child))
    const webPids = [child.pid!, ...childrenNamed(child.pid!, 'penny-web')]
    const apiKeys = await openAccounts(database, options, dataDir)
    const postmaster = Number(readFileSync(join(dataDir, 'postgres', 'postmaster.pid'), 'utf8').split('\n', 1)[0])
    const helper = (title: string) => childrenNamed(child.pid!, title)[0] ?? 0
    const helpers = {
      sign: helper('penny-sign'),
      settle: helper('penny-settle'),
      gateway: helper('penny-gateway'),
      sandbox: helper('penny-sandbox'),
    }
    return {
      baseUrl,
      processes: webPids.length,
      database,
      databaseUrl: postgres.url,
      pid: child.pid!,
      apiKeys,
      cpu: () => ({
        web: webPids.reduce((sum, pid) => sum + cpuMs(pid), 0),
        postgres: familyCpuMs(postmaster),
        sign: cpuMs(helpers.sign),
        settle: cpuMs(helpers.settle),
        gateway: cpuMs(helpers.gateway),
        sandbox: cpuMs(helpers.sandbox),
      }),
      memoryKiB: () => webPids.reduce((sum, pid) => sum + memoryKiB(pid), 0),
      pin: (core) => pinFamilies([...webPids, postmaster], core),
      settled: () => (options.settles ? untilSettled(database) : Promise.resolve()),
      stop: () => stack.disposeAsync(),
    }
  } catch (error) {
    await stack.disposeAsync()
    throw error
  }
}

async function start(options: ServiceOptions, dataDir: string, databaseUrl: string) {
  const child = spawn(process.execPath, [...(options.nodeOptions ?? []), mainFile, 'start', '--json'], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: {
      ...process.env,
      PORT: '0',
      DATA_DIR: dataDir,
      DATABASE_URL: databaseUrl,
      UPSTREAM_BASE_URL: options.upstreamUrl,
      SEARCH_PROVIDER: 'none',
      LOG_LEVEL: 'error',
      // A few accounts carry what thousands would: their caps are raised, and nothing else.
      IN_FLIGHT_CAP_USDC: '1000',
      UNSETTLED_CAP_USDC: '100000',
      ...(!options.settles && { ROLES: 'web' }),
      WEB_PROCESSES: String(options.processes ?? 1),
      ...options.environment,
    },
  })
  const line = await firstLine(child)
  const { base_url: baseUrl } = JSON.parse(line) as { base_url: string }
  // The name may resolve to an address of the other family first.
  return { child, baseUrl: baseUrl.replace('localhost', '127.0.0.1') }
}

async function firstLine(child: ChildProcess): Promise<string> {
  const signal = AbortSignal.timeout(readyMsMax)
  const ended = once(child, 'exit', { signal }).then(() => {
    throw new Error('the service ended at its start')
  })
  ended.catch(() => {})
  let text = ''
  while (!text.includes('\n')) {
    const [data] = (await Promise.race([once(child.stdout!, 'data', { signal }), ended])) as [Buffer]
    text += data.toString('utf8')
  }
  child.stdout!.resume()
  return text.slice(0, text.indexOf('\n'))
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const exited = once(child, 'exit')
  child.kill('SIGTERM')
  await exited
}

/** Money comes over the sandbox's chain where there is one, so that what is signed can be settled. */
async function openAccounts(database: Database, options: ServiceOptions, dataDir: string): Promise<readonly string[]> {
  const client = sandboxClient(dataDir)
  return Promise.all(
    Array.from({ length: options.accounts }, async (_, index) => {
      const account = await createAccount(database, `bench ${index}`, 1)
      const { partition } = account
      if (options.settles) {
        const address = await until(() => requestDepositAddress(database, account))
        await client.faucet(address, balance)
        await until(async () => (await findAccount(database, partition, account.id))!.deposited >= balance || undefined)
      } else {
        const id = randomUUID()
        await creditDeposit(database, { partition, id, accountId: account.id, amount: balance, source: 'bench' })
      }
      const { secret } = await createKey(database, { partition, accountId: account.id, name: 'bench' })
      return secret
    }),
  )
}

async function untilSettled(database: Database): Promise<void> {
  await until(async () => {
    const [open] = await database.query('select from accounts where charged - given_back <> paid limit 1')
    return open === undefined || undefined
  })
}

async function until<Found>(look: () => Promise<Found | undefined>): Promise<Found> {
  for (;;) {
    const found = await look()
    if (found !== undefined) return found
    await sleep(pollMs)
  }
}
