import assert from 'node:assert/strict'
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { promisify } from 'node:util'
import { openDatabase } from '../../src/db/database.ts'
import { locateEmbeddedPostgres } from '../../src/db/embedded-postgres.ts'
import { findViolations } from '../../src/ledger/audit.ts'
import { childEnvironment, pennyProgram } from '../support/child-environment.ts'
import { until } from '../support/until.ts'

// The drill of docs/runbooks/backup.md: copy the data folder while requests run, lose it, put the copy in its place.

const folder = mkdtempSync(join(tmpdir(), 'penny-restore-'))
const dataDir = join(folder, 'data')
const environment = {
  ...childEnvironment,
  HOME: folder,
  DATA_DIR: dataDir,
  PORT: '0',
  SANDBOX_TOKENS_PER_SECOND: '0',
  LOG_LEVEL: 'silent',
}
let service: ChildProcess | undefined
after(async () => {
  await stop('SIGTERM')
  rmSync(folder, { recursive: true, force: true })
})

test('a backup made while requests run is restored with every unit, and the service continues', async () => {
  // Batches wait: what the sandbox's chain has is what its copy has, as if the chain were elsewhere.
  await start({ GATEWAY_BATCH_MS: '600000' })
  const traffic = sendRequests()
  await until(async () => traffic.served >= 5)
  const copy = join(folder, 'copy')
  await penny('backup', copy)
  await traffic.stop()
  const served = await readLedger()

  // Lost, with everything that came after the copy, on a machine that gave no warning.
  await stop('SIGKILL')
  await penny('audit') // Adopts the database that the killed service left running, and stops it.
  rmSync(dataDir, { recursive: true })
  await copyBack(copy, dataDir)

  await start({ GATEWAY_BATCH_MS: '200' })
  await settled()
  const ledger = await readLedger()
  assert.deepEqual(ledger.violations, [])
  assert.equal(ledger.held, 0n, 'what was open in the copy is ended')
  assert.equal(ledger.deposited, served.deposited)
  assert.equal(ledger.gateway + ledger.credit + ledger.charged, ledger.deposited, 'every unit is somewhere')
  assert.ok(ledger.requests >= 5n)
  assert.equal((await ask()).status, 200)
  await stop('SIGTERM')
})

test('a copy made after a stop is the same to the unit, and deposits that came later are read from the chain', async () => {
  await start({ GATEWAY_BATCH_MS: '200' })
  for (let turn = 0; turn < 3; turn += 1) assert.equal((await ask()).status, 200)
  await settled()
  const before = await readLedger()
  await stop('SIGTERM')
  const copy = join(folder, 'cold')
  await copyBack(dataDir, copy)

  await start({ GATEWAY_BATCH_MS: '200' })
  await penny('faucet', '--amount', '3')
  const after = await readLedger()
  await stop('SIGTERM')
  // The chain is public: it is not lost with the ledger.
  rmSync(join(dataDir, 'postgres'), { recursive: true })
  await copyBack(join(copy, 'postgres'), join(dataDir, 'postgres'))

  await start({ GATEWAY_BATCH_MS: '200' })
  await until(async () => (await readLedger()).deposited === after.deposited)
  await settled()
  assert.deepEqual(await readLedger(), after)
  assert.equal(after.deposited, before.deposited + 3_000_000n)
  // The next sweep meets the nonce of the forgotten one, and takes the one after it.
  await penny('faucet', '--amount', '1')
  assert.equal((await ask()).status, 200)
  await penny('audit')
})

type Ledger = {
  readonly deposited: bigint
  readonly gateway: bigint
  readonly credit: bigint
  readonly charged: bigint
  readonly held: bigint
  readonly requests: bigint
  readonly violations: readonly unknown[]
}

async function readLedger(): Promise<Ledger> {
  const database = openDatabase({ url: (await locateEmbeddedPostgres(dataDir))!, poolMax: 1, applicationName: 'test' })
  try {
    const [sums] = await database.query<Omit<Ledger, 'violations'>>(
      `select sum(deposited)::bigint as deposited, sum(gateway)::bigint as gateway, sum(credit)::bigint as credit,
              sum(charged)::bigint as charged, sum(held)::bigint as held, (select count(*) from requests) as requests
         from accounts`,
    )
    return { ...sums!, violations: await findViolations(database) }
  } finally {
    await database.close()
  }
}

/** Until every payment is on the chain and the chain was found to have what the ledger says. */
async function settled(): Promise<void> {
  const open = /\n(unpaid|submitted|received|batched|unknown) /
  await until(async () => {
    const { stdout } = await penny('settle', 'status')
    return !open.test(stdout) && stdout.includes('Ledger and chain match')
  })
}

function sendRequests() {
  let [served, stopping] = [0, false]
  const loop = async () => {
    while (!stopping) {
      const { status } = await ask()
      assert.equal(status, 200)
      served += 1
    }
  }
  const loops = Promise.all([loop(), loop(), loop()])
  return {
    get served() {
      return served
    },
    async stop() {
      stopping = true
      await loops
    },
  }
}

async function ask(): Promise<Response> {
  const { base_url: baseUrl, api_key: apiKey } = JSON.parse(readFileSync(join(dataDir, 'sandbox.json'), 'utf8'))
  const response = await fetch(`${baseUrl}/chat/completions`, {
    method: 'POST',
    body: JSON.stringify({
      messages: [{ role: 'user', content: 'Hi [sandbox:tokens 5]' }],
      max_tokens: 50,
      web_search: false,
    }),
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
  })
  await response.arrayBuffer()
  return response
}

function penny(...args: readonly string[]) {
  return promisify(execFile)(process.execPath, [...pennyProgram(), ...args], { env: environment })
}

async function copyBack(from: string, to: string): Promise<void> {
  await promisify(execFile)('cp', ['-a', from, to])
}

async function start(settings: Readonly<Record<string, string>>): Promise<void> {
  service = spawn(process.execPath, [...pennyProgram(), 'start'], {
    env: { ...environment, ...settings },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let printed = ''
  for await (const text of service.stdout!) {
    printed += String(text)
    if (printed.includes('Ctrl-C stops everything.')) return
  }
  assert.fail(`the service did not start:\n${printed}`)
}

async function stop(signal: NodeJS.Signals): Promise<void> {
  if (service === undefined || service.exitCode !== null || service.signalCode !== null) return
  service.kill(signal)
  await once(service, 'exit')
}
