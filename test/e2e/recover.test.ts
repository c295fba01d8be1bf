import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { promisify } from 'node:util'
import pg from 'pg'
import { startModelServer } from '../../sandbox/model/server.ts'
import { readConfig } from '../../src/config/config.ts'
import { createKey } from '../../src/identity/api-keys.ts'
import { type Account, createAccount, findAccount } from '../../src/ledger/accounts.ts'
import { requestDepositAddress } from '../../src/ledger/deposit-addresses.ts'
import { summarizePayments } from '../../src/ledger/payments.ts'
import type { Service } from '../../src/run/service.ts'
import { AccountKeys } from '../../src/signer/account-keys.ts'
import { atEnd } from '../support/at-end.ts'
import { childEnvironment, pennyProgram } from '../support/child-environment.ts'
import { startTestedService } from '../support/documented-answers.ts'
import { openBench, token } from '../support/gateway.ts'
import { testDatabase } from '../support/postgres.ts'
import { usdc } from '../support/sandbox-chain.ts'
import { until } from '../support/until.ts'

// As in production: the chain and the gateway are others', and keep what they have when the ledger is lost.

const masterKey = 'a1'.repeat(32)
const owner = '0x70997970c51812dc3a010c7d01b50e0d17dc79c8'

test('a ledger restored from an older copy is brought up to the chain: no payment is made twice, no unit is lost', async (t) => {
  const house = await openHouse(t)
  const first = await house.start(house.databaseUrl)
  const { account, apiKey } = await openAccount(first)
  const { account: newcomer } = await openAccount(first)
  await deposit(house, first, account, 5_000_000n)
  await ask(first, apiKey)
  await ask(first, apiKey)
  await settled(first)
  const copied = await accountOf(first, account)
  await first.stop()
  const copyUrl = await house.copyDatabase()

  const second = await house.start(house.databaseUrl)
  await ask(second, apiKey)
  await deposit(house, second, account, 2_000_000n)
  await deposit(house, second, newcomer, 1_500_000n)
  for (let turn = 0; turn < 4; turn += 1) await ask(second, apiKey)
  await settled(second)
  const lost = await accountOf(second, account)
  await second.stop()

  // The ledger is lost; the copy is all there is. It must not serve before it knows what is paid.
  await penny(house, copyUrl, 'recover', '--freeze')
  const third = await house.start(copyUrl)
  assert.equal((await send(third, apiKey)).status, 503)
  await penny(house, copyUrl, 'recover')
  const found = await accountOf(third, account)
  assert.equal(found.deposited, lost.deposited)
  assert.equal((await accountOf(third, newcomer)).deposited, 1_500_000n, 'its address was assigned after the copy')
  assert.equal(found.spendable, lost.spendable, 'nobody has less than before, or more')
  assert.notEqual(found.spendable, copied.spendable + 2_000_000n, 'what was paid after the copy is charged')

  // Running it again finds nothing more, new requests take new nonces, and everything settles.
  assert.equal((await send(third, apiKey)).status, 200)
  await settled(third)
  // The last comparison may be one from before the ledger was right.
  await until(async () => (await third.database.query('select from solvency where ok')).length > 0)
  const { stdout } = await penny(house, copyUrl, 'settle', 'status')
  assert.doesNotMatch(stdout, /failed|unknown/)
  await penny(house, copyUrl, 'audit')
})

test('withdrawals after the copy are booked from the chain: what the owner was paid is not owed again, credit included', async (t) => {
  const house = await openHouse(t)
  const first = await house.start(house.databaseUrl)
  const { account, apiKey } = await openAccount(first)
  await deposit(house, first, account, 5_000_000n)
  await ask(first, apiKey)
  await settled(first)
  await first.stop()
  const copyUrl = await house.copyDatabase()

  const second = await house.start(house.databaseUrl)
  await ask(second, apiKey)
  await settled(second)
  const withdraw = (amount: string) =>
    penny(house, house.databaseUrl, 'withdraw', '--account', account.id, '--amount', amount, '--to', owner, '--yes')
  await withdraw('1.5')
  assert.ok((await accountOf(second, account)).credit > 0n)
  await withdraw('all')
  await deposit(house, second, account, 2_000_000n)
  await ask(second, apiKey)
  await settled(second)
  const [lost, lostTotals] = [await accountOf(second, account), await totalsOf(second, account)]
  await second.stop()

  await penny(house, copyUrl, 'recover', '--freeze')
  const third = await house.start(copyUrl)
  const { stdout } = await penny(house, copyUrl, 'recover', '--json')
  const { withdrawals, unexplained, violations, frozen } = JSON.parse(stdout)
  assert.deepEqual([unexplained, violations, frozen], [[], [], false])
  assert.deepEqual(
    withdrawals.map(({ recipient }: { recipient: string }) => recipient),
    [owner, owner],
  )
  const found = await accountOf(third, account)
  assert.deepEqual(await totalsOf(third, account), lostTotals)
  assert.equal(found.spendable, lost.spendable, 'nobody has less than before, or more')
  assert.equal((await send(third, apiKey)).status, 200)
  await settled(third)
  await penny(house, copyUrl, 'audit')
  // Again from the same copy: entries that exist are not added twice.
  await third.database.query("insert into chain_cursors (name, block) values ('recover from', 0)")
  await penny(house, copyUrl, 'recover', '--freeze')
  const again = JSON.parse((await penny(house, copyUrl, 'recover', '--json')).stdout)
  assert.deepEqual([again.payments, again.withdrawals, again.frozen], [0, [], false])
})

async function totalsOf({ database }: Service, { partition, id }: Account) {
  const [row] = await database.query(
    'select deposited, withdrawn, charged - given_back as charged, paid from accounts where partition = $1 and id = $2',
    [partition, id],
  )
  return row
}

type House = {
  readonly databaseUrl: string
  readonly dataDir: string
  readonly environment: Readonly<Record<string, string>>
  readonly giveUsdc: (address: string, atomic: bigint) => Promise<unknown>
  start(databaseUrl: string): Promise<Service>
  copyDatabase(): Promise<string>
}

let houses = 0

async function openHouse(t: TestContext): Promise<House> {
  const bench = await openBench(t)
  const seller = new AccountKeys(Buffer.from(masterKey, 'hex')).ofRole('seller').address
  const gateway = await bench.start({ payees: [seller] })
  const ledger = await testDatabase()
  const model = await startModelServer({ host: '127.0.0.1', port: 0, tokensPerSecond: 0 })
  const dataDir = mkdtempSync(join(tmpdir(), 'penny-recover-'))
  const environment = {
    PORT: '0',
    WEB_PROCESSES: '1',
    DATA_DIR: dataDir,
    UPSTREAM_BASE_URL: model.url,
    LOG_LEVEL: process.env.TEST_LOG_LEVEL ?? 'silent',
    SEARCH_PROVIDER: 'none',
    DRAIN_MS: '2000',
    CHAIN_RPC_URL: bench.chain.url,
    GATEWAY_URL: gateway.url,
    GATEWAY_TOKEN: token,
    OWNER_COOLDOWN: '0',
    SETTLE_AFTER_MS: '0',
    SETTLE_MIN_USDC: '0.000001',
    USDC_ADDRESS: usdc,
    GATEWAY_WALLET_ADDRESS: bench.wallet,
    MASTER_KEY: masterKey,
  }
  const copyName = `copy_${process.pid}_${(houses += 1)}`
  atEnd(t, async () => {
    await onServer(ledger.url, `drop database if exists ${copyName} with (force)`)
    await ledger.drop()
    await model.close()
    rmSync(dataDir, { recursive: true, force: true })
  })
  return {
    databaseUrl: ledger.url,
    dataDir,
    environment,
    giveUsdc: (address, atomic) => bench.chain.admin.giveUsdc(address as `0x${string}`, atomic),
    async start(databaseUrl) {
      // The commands do not have it: they need only DATA_DIR, so the epoch must come from the ledger.
      const settings = { ...environment, DATABASE_URL: databaseUrl, SETTLEMENT_EPOCH: '2' }
      const service = await startTestedService(readConfig(settings))
      let stopped: Promise<void> | undefined
      const stop = () => (stopped ??= service.stop())
      atEnd(t, stop)
      await bench.chain.admin.giveUsdc(service.money!.relayer, 10_000_000n)
      return { ...service, stop }
    },
    async copyDatabase() {
      const url = new URL(ledger.url)
      const name = url.pathname.slice(1)
      await onServer(ledger.url, `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${name}'`)
      await onServer(ledger.url, `create database ${copyName} template ${name} strategy file_copy`)
      url.pathname = `/${copyName}`
      return url.href
    },
  }
}

async function onServer(url: string, statement: string): Promise<void> {
  const server = new URL(url)
  server.pathname = '/postgres'
  const client = new pg.Client({ connectionString: server.href })
  await client.connect()
  try {
    await client.query(statement)
  } finally {
    await client.end()
  }
}

async function openAccount({ database }: Service): Promise<{ account: Account; apiKey: string }> {
  const account = await createAccount(database, 'drill', 1)
  const { secret } = await createKey(database, { partition: account.partition, accountId: account.id, name: 'drill' })
  return { account, apiKey: secret }
}

async function deposit(house: House, service: Service, account: Account, atomic: bigint): Promise<void> {
  const before = await accountOf(service, account)
  const address = await until(() => requestDepositAddress(service.database, account))
  await house.giveUsdc(address, atomic)
  await until(async () => (await accountOf(service, account)).deposited === before.deposited + atomic)
}

async function accountOf({ database }: Service, { partition, id }: Account): Promise<Account> {
  return (await findAccount(database, partition, id))!
}

async function settled({ database }: Service): Promise<void> {
  await until(async () => (await summarizePayments(database)).every(({ state }) => state === 'completed'))
}

async function ask(service: Service, apiKey: string): Promise<void> {
  assert.equal((await send(service, apiKey)).status, 200)
}

async function send(service: Service, apiKey: string): Promise<Response> {
  const response = await fetch(`${service.publicUrl}/v1/chat/completions`, {
    method: 'POST',
    body: JSON.stringify({ messages: [{ role: 'user', content: 'Hi [sandbox:tokens 5]' }], max_tokens: 50 }),
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
  })
  await response.arrayBuffer()
  return response
}

function penny({ environment }: House, databaseUrl: string, ...args: readonly string[]) {
  return promisify(execFile)(process.execPath, [...pennyProgram(), ...args], {
    env: { ...childEnvironment, ...environment, DATABASE_URL: databaseUrl },
  })
}
