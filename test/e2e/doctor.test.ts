import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { freezeLedger } from '../../src/ledger/freeze.ts'
import { fingerprintOf } from '../../src/signer/master-key.ts'
import { openPayer } from '../support/ledger.ts'
import { preparePenny } from '../support/penny-command.ts'
import { testDatabase } from '../support/postgres.ts'

// What an operator gets wrong, planted. Each must be named with what to do about it, and be the reason of exit code 1.

const penny = preparePenny({ keepsProcess: true })
const closing: (() => unknown)[] = [() => penny.remove()]
after(async () => {
  for (const close of closing.reverse()) await close()
})

type Finding = { readonly check: string; readonly state: string; readonly detail: string; readonly remedy?: string }

async function examine(
  environment: Readonly<Record<string, string>>,
): Promise<{ code: number | null; findings: Finding[]; text: string }> {
  const { code, stdout } = await penny.run(['doctor', '--json'], environment)
  return { code, findings: (JSON.parse(stdout) as { findings: Finding[] }).findings, text: stdout }
}

function assertFound(findings: readonly Finding[], check: string, detail: RegExp, remedy: RegExp): void {
  const found = findings.find(
    (finding) => finding.check === check && finding.state === 'failed' && detail.test(finding.detail),
  )
  assert.ok(found !== undefined, `${check} ${detail}: ${JSON.stringify(findings)}`)
  assert.match(found.remedy ?? '', remedy)
}

/** A foreign server. */
async function listen(answer: (incoming: IncomingMessage, outgoing: ServerResponse) => void): Promise<number> {
  const server = createServer(answer)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  closing.push(() => server.close())
  return (server.address() as AddressInfo).port
}

/** A node of a chain with this number, without contracts and balances. */
async function startNode(chainId: number): Promise<string> {
  const results: Readonly<Record<string, string>> = {
    eth_chainId: `0x${chainId.toString(16)}`,
    eth_getCode: '0x',
    eth_getBalance: '0x0',
  }
  const port = await listen(async (incoming, outgoing) => {
    const call = JSON.parse((await incoming.toArray()).join('')) as { id: number; method: string }
    outgoing.writeHead(200, { 'content-type': 'application/json' })
    outgoing.end(JSON.stringify({ jsonrpc: '2.0', id: call.id, result: results[call.method] }))
  })
  return `http://127.0.0.1:${port}`
}

const address = (digit: string) => `0x${digit.repeat(40)}`
const masterKey = 'ab'.repeat(32)
const realChain = {
  GATEWAY_URL: 'http://127.0.0.1:9',
  USDC_ADDRESS: address('1'),
  GATEWAY_WALLET_ADDRESS: address('2'),
  MASTER_KEY: masterKey,
}

test('a sound installation has nothing in the way', async () => {
  const { code, findings } = await examine({})
  assert.deepEqual([code, findings.filter(({ state }) => state === 'failed')], [0, []])
})

test('an unreadable setting is named, and nothing else is checked', async () => {
  const { code, findings } = await examine({ PORT: 'eighty' })
  assert.equal(code, 1)
  assertFound(findings, 'configuration', /PORT must be a whole number/, /penny config/)
})

test('of ten mistakes each is named with its remedy, and no secret is repeated', async () => {
  const taken = await listen((_, outgoing) => outgoing.end('I am not Penny'))
  const upstream = await listen((_, outgoing) => outgoing.writeHead(401).end())
  mkdirSync(penny.dataDir, { recursive: true })
  chmodSync(penny.dataDir, 0o777)
  writeFileSync(join(penny.dataDir, 'master.fingerprint'), fingerprintOf(Buffer.from('cd'.repeat(32), 'hex')))
  writeFileSync(join(penny.dataDir, 'sandbox.json'), '{}', { mode: 0o644 })
  const models = join(penny.folder, 'models.json')
  writeFileSync(models, '[]')
  const { code, findings, text } = await examine({
    ...realChain,
    NODE_ENV: 'production',
    PORT: String(taken),
    PUBLIC_URL: 'http://router.example.com',
    DATABASE_URL: 'postgresql://penny:hunter2@127.0.0.1:9/penny',
    UPSTREAM_BASE_URL: `http://127.0.0.1:${upstream}/v1`,
    UPSTREAM_API_KEY: 'sk-hunter3',
    CHAIN_RPC_URL: 'http://127.0.0.1:9/v2/hunter4hunter4hunter4hunter4',
    SEARCH_PROVIDER: 'searxng',
    SEARXNG_URL: 'http://127.0.0.1:9',
    MODELS_FILE: models,
  })
  assert.equal(code, 1)
  assertFound(findings, 'data folder', /can be written by others \(mode 0777\)/, /chmod 711/)
  assertFound(findings, 'secrets', /sandbox\.json can be read by others/, /chmod 600/)
  assertFound(findings, 'port', /is in use by another program/, /PORT/)
  assertFound(findings, 'address', /is not https/, /TLS proxy/)
  assertFound(findings, 'database', /cannot be used: .*ECONNREFUSED/, /host, port, name, user, password/)
  assertFound(findings, 'upstream', /rejects UPSTREAM_API_KEY \(401\)/, /valid key/)
  assertFound(findings, 'chain', /The chain node in CHAIN_RPC_URL/, /another provider/)
  assertFound(findings, 'search (searxng)', /does not answer/, /SEARXNG_URL/)
  assertFound(findings, 'models', /MODELS_FILE/, /five models/)
  assertFound(findings, 'master key', /is not the key of this data folder/, /previous key/)
  assert.doesNotMatch(text, /hunter|abab/)
})

test('a missing key, pending migrations, a wrong chain, missing contracts and an empty relayer are named', async () => {
  chmodSync(penny.dataDir, 0o711)
  const upstream = await listen((_, outgoing) => outgoing.writeHead(401).end())
  const noMigrations = join(penny.folder, 'none')
  mkdirSync(noMigrations)
  const empty = await testDatabase({ migrations: noMigrations })
  closing.push(() => empty.drop())
  const node = await startNode(5_042)
  const line = {
    rpcUrl: node,
    gatewayUrl: '',
    terms: { chainId: 5_042 },
    issuer: address('3'),
    relayer: address('4'),
  }
  writeFileSync(join(penny.dataDir, 'settlement-endpoints.json'), JSON.stringify(line))
  const environment = { ...realChain, DATABASE_URL: empty.url, UPSTREAM_BASE_URL: `http://127.0.0.1:${upstream}/v1` }
  const first = await examine({ ...environment, CHAIN_RPC_URL: `http://127.0.0.1:9/v2/key,${node}` })
  assert.equal(first.code, 1)
  assertFound(first.findings, 'upstream', /UPSTREAM_API_KEY is not set/, /Set UPSTREAM_API_KEY/)
  assertFound(first.findings, 'migrations', /Not applied: 0001_baseline, .*\d+ functions/, /penny migrate/)
  assertFound(first.findings, 'chain', /The chain node in CHAIN_RPC_URL \(127\.0\.0\.1:9\)/, /another provider/)
  assertFound(first.findings, 'contracts', /USDC_ADDRESS 0x1+ has no code on chain 5042/, /USDC_ADDRESS/)
  assertFound(first.findings, 'contracts', /GATEWAY_WALLET_ADDRESS 0x2+ has no code/, /GATEWAY_WALLET_ADDRESS/)
  assertFound(first.findings, 'gas', /0x4+ has less than 1 USDC/, /native USDC/)
  const two = await examine({ ...environment, CHAIN_RPC_URL: `${node},${await startNode(1)}` })
  assertFound(two.findings, 'chain', /names nodes of two chains: 5042 and 1/, /Remove the nodes/)
  const other = await examine({ ...environment, CHAIN_RPC_URL: await startNode(1) })
  assertFound(
    other.findings,
    'chain',
    /is a node of chain 1, but this data folder was used with chain 5042/,
    /previous chain/,
  )
})

test('https without a trusted proxy is reported: all clients would count as one', async () => {
  const https = { PUBLIC_URL: 'https://router.example.com' }
  const { code, findings } = await examine(https)
  assert.equal(code, 1)
  assertFound(findings, 'proxy', /TRUST_PROXY is not set: all clients share one IP address/, /TRUST_PROXY=1/)
  const trusting = await examine({ ...https, TRUST_PROXY: '1' })
  assert.equal(
    trusting.findings.some(({ check }) => check === 'proxy'),
    false,
  )
})

test('a master key on a machine that does not sign is named', async () => {
  const find = async (environment: Readonly<Record<string, string>>) =>
    (await examine({ ROLES: 'web', ...environment })).findings.find(({ check }) => check === 'master key')
  const given = await find({ MASTER_KEY: masterKey })
  assert.deepEqual([given?.state, given?.remedy?.slice(0, 9)], ['warning', 'Remove it'])
  assert.equal((await find({}))?.state, 'skipped')
})

test('a frozen ledger is named with its reason', async () => {
  const ledger = await testDatabase()
  closing.push(() => ledger.drop())
  await freezeLedger(ledger.database, 'I1 is broken at somebody')
  const { code, findings } = await examine({ DATABASE_URL: ledger.url })
  assert.equal(code, 1)
  assertFound(findings, 'ledger', /The ledger is frozen: I1 is broken at somebody/, /penny audit --unfreeze/)
  const told = await penny.run(['doctor'], { DATABASE_URL: ledger.url })
  assert.match(told.stdout, /^✗ ledger +The ledger is frozen: .*\n +→ Find the cause with penny audit/m)
})

test('a withdrawal that the gateway never answered is named, with its runbook', async () => {
  const ledger = await testDatabase()
  closing.push(() => ledger.drop())
  const { partition, accountId } = await openPayer(ledger.database, 1_000n)
  await ledger.database.query(
    `insert into transfers (partition, kind, id, account_id, amount, counterparty, state, created_at)
     values ($1, 'withdrawal', $2, $3, 500, $4, 'sent', clock_timestamp() - interval '1 hour')`,
    [partition, randomUUID(), accountId, address('5')],
  )
  const { findings } = await examine({ DATABASE_URL: ledger.url })
  assertFound(findings, 'withdrawals', /The gateway has not confirmed 1/, /settlement-stuck\.md/)
})

test('an impossible data folder, or one that has lost its master key, is named', async () => {
  const file = join(penny.folder, 'a-file')
  writeFileSync(file, '')
  const nowhere = await examine({ DATA_DIR: join(file, 'data') })
  assertFound(nowhere.findings, 'data folder', /cannot be written/, /DATA_DIR/)
  const lost = await examine({})
  assertFound(
    lost.findings,
    'master key',
    /MASTER_KEY is not set, but this data folder was made with one/,
    /same key again/,
  )
})
