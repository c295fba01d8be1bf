import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, writeFileSync } from 'node:fs'
import { createServer as createHttpServer } from 'node:http'
import { type AddressInfo, createServer, type Server } from 'node:net'
import { join } from 'node:path'
import { after, type TestContext, test } from 'node:test'
import { promisify } from 'node:util'
import { findStartProblem } from '../../bin/preflight.mjs'
import { claimPayment } from '../../src/ledger/x402-payments.ts'
import { publishTerms } from '../../src/settlement/published-terms.ts'
import { atEnd } from '../support/at-end.ts'
import { preparePenny } from '../support/penny-command.ts'
import { testDatabase } from '../support/postgres.ts'
import { keys, masterKey, ownerAddress, terms } from '../support/signing.ts'
import { until } from '../support/until.ts'
import { newWallet, signedPayment } from '../support/wallet-payments.ts'

// A start that cannot succeed goes into a journal that many people read: one line, and no key in it.

const penny = preparePenny()
after(() => penny.remove())

const providerKey = 'hunter2hunter2hunter2hunter2'
const address = (digit: string) => `0x${digit.repeat(40)}`
const nothingEmbedded = {
  UPSTREAM_BASE_URL: 'http://127.0.0.1:1/v1',
  SEARCH_PROVIDER: 'none',
  CHAIN_RPC_URL: `http://127.0.0.1:1/v2/${providerKey}`,
  GATEWAY_URL: 'http://127.0.0.1:1',
  USDC_ADDRESS: address('1'),
  GATEWAY_WALLET_ADDRESS: address('2'),
  MASTER_KEY: 'ab'.repeat(32),
}
const gateway = {
  ...nothingEmbedded,
  GATEWAY_RELAYER_KEY: 'cd'.repeat(32),
  GATEWAY_TOKEN: 't'.repeat(32),
  GATEWAY_PAYEES: `0x${'ab'.repeat(20)}`,
  GATEWAY_PORT: '0',
}

/** It failed, and what it said on standard error is this line and nothing else. */
async function assertOneLine(
  args: readonly string[],
  environment: Readonly<Record<string, string>>,
  line: RegExp,
): Promise<void> {
  const { code, stderr } = await penny.run(args, environment)
  assert.equal(code, 1, stderr)
  assert.deepEqual(stderr.trimEnd().split('\n').length, 1, stderr)
  assert.match(stderr, line)
  assert.doesNotMatch(stderr, /hunter/)
}

async function listen(t: TestContext, server: Server): Promise<number> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  atEnd(t, () => server.close())
  return (server.address() as AddressInfo).port
}

async function closedPort(t: TestContext): Promise<number> {
  const server = createServer()
  const port = await listen(t, server)
  server.close()
  return port
}

/** The message of a server that requires passwords; the embedded server of the tests requires none. */
async function refusingPasswords(t: TestContext): Promise<number> {
  const fields = ['SFATAL', 'VFATAL', 'C28P01', 'Mpassword authentication failed for user "penny"', '']
  const body = Buffer.from(`${fields.join('\0')}\0`)
  const head = Buffer.from([0x45, 0, 0, 0, 0])
  head.writeUInt32BE(body.length + 4, 1)
  return listen(
    t,
    createServer((socket) => socket.on('error', () => {}).once('data', () => socket.end(Buffer.concat([head, body])))),
  )
}

// A taken port must be reported immediately, without waiting for the database.
test('a start whose port or data folder is unavailable is refused in one line, before anything is created', async (t) => {
  const port = await listen(t, createServer())
  await assertOneLine(
    ['start'],
    { PORT: String(port) },
    new RegExp(`^penny: Port ${port} of 127\\.0\\.0\\.1 is in use\\. Stop what uses it`),
  )
  assert.equal(existsSync(join(penny.dataDir, 'postgres')), false)
  const file = join(penny.folder, 'file')
  writeFileSync(file, '')
  await assertOneLine(['start'], { DATA_DIR: file }, /^penny: DATA_DIR cannot be used: .*file is not a folder/)
})

test('an install without the sandbox’s chain, and without the settings of a real one, is refused in one line before a database is made', async () => {
  const withoutHardhat = `import { registerHooks } from 'node:module'
    registerHooks({ resolve(name, context, next) {
      if (name.startsWith('hardhat')) throw new Error('not installed')
      return next(name, context)
    } })`
  const settings = { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(withoutHardhat)}` }
  await assertOneLine(['start'], settings, /^penny: The chain of the sandbox is not installed: .* set CHAIN_RPC_URL,/)
  assert.equal(existsSync(join(penny.dataDir, 'postgres')), false)
})

test('a fresh clone looks at port and data folder before it installs anything', async (t) => {
  const port = await listen(t, createServer())
  const file = join(penny.folder, 'file')
  writeFileSync(file, '')
  assert.match(
    (await findStartProblem({ PORT: String(port), DATA_DIR: penny.folder }))!,
    /^Port \d+ of 127\.0\.0\.1 is in use/,
  )
  assert.match((await findStartProblem({ PORT: 'abc', DATA_DIR: penny.folder }))!, /^PORT must be a whole number/)
  assert.match((await findStartProblem({ PORT: '0', DATA_DIR: file }))!, /file is not a folder/)
  assert.match((await findStartProblem({ PORT: '0', DATA_DIR: join(file, 'data') }))!, /file is not a folder/)
  assert.equal(await findStartProblem({ PORT: '0', DATA_DIR: join(penny.folder, 'a', 'b') }), undefined)
})

const rootOnly = process.getuid?.() === 0 ? {} : { skip: 'only root can become another user' }
test('a port that this user may not use is refused in one line', rootOnly, async () => {
  const script = `
    const [{ portProblem }, { findStartProblem }] = await Promise.all([
      import(${JSON.stringify(new URL('../../src/http/server.ts', import.meta.url).href)}),
      import(${JSON.stringify(new URL('../../bin/preflight.mjs', import.meta.url).href)}),
    ])
    process.setgroups([])
    process.setgid(65534)
    process.setuid(65534)
    const { message } = (await portProblem({ host: '127.0.0.1', port: 80 })) ?? {}
    console.log(JSON.stringify([message, await findStartProblem({ PORT: '80', DATA_DIR: '/tmp' })]))`
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', script])
  const line = 'This user may not listen on port 80 of 127.0.0.1. Choose a port above 1023 with PORT.'
  assert.deepEqual(JSON.parse(stdout), [line, line])
})

const checkIt = 'Check host, port, name, user, password and network access\\.$'

for (const [command, args] of [
  ['a start', ['start']],
  ['a command', ['accounts']],
  ['penny migrate', ['migrate', 'pending']],
  ['our gateway', ['gateway']],
] as const) {
  const settings = command === 'our gateway' ? gateway : nothingEmbedded

  test(`${command} with a wrong password, a closed port or an unknown host in DATABASE_URL is refused in one line`, async (t) => {
    const to = (place: string) => ({ ...settings, DATABASE_URL: `postgresql://penny:hunter3@${place}/penny` })
    const said = (reason: string) => new RegExp(`^penny: DATABASE_URL cannot be used: ${reason}.*\\. ${checkIt}`, 'm')
    const refusing = `127.0.0.1:${await refusingPasswords(t)}`
    await assertOneLine(args, to(refusing), said('28P01 password authentication failed for user "penny"'))
    await assertOneLine(args, to(`127.0.0.1:${await closedPort(t)}`), said('connect ECONNREFUSED'))
    await assertOneLine(args, to('db.invalid'), said('getaddrinfo \\w+ db\\.invalid'))
  })
}

test('a database that does not exist, or may not be written, is refused in one line', async (t) => {
  const { url, database, drop } = await testDatabase()
  atEnd(t, drop)
  const missing = new URL(url)
  missing.pathname = '/absent'
  const start = (databaseUrl: string, line: RegExp) =>
    assertOneLine(['start'], { ...nothingEmbedded, DATABASE_URL: databaseUrl }, line)
  await start(missing.href, /^penny: DATABASE_URL cannot be used: 3D000 database "absent" does not exist\. Check host/)
  const [row] = await database.query<{ name: string }>('select current_database() as name')
  const role = `reader_${row!.name}`
  await database.execute(`create role ${role} login; grant select on all tables in schema public to ${role}`)
  atEnd(t, () => database.execute(`drop owned by ${role}; drop role ${role}`))
  const reader = new URL(url)
  reader.username = role
  await start(reader.href, /^penny: DATABASE_URL cannot be used: 42501 permission denied for .*\. Check host/)
})

test('a node that is away, or answers something else, is refused in one line without its key', async (t) => {
  const { url, drop } = await testDatabase()
  atEnd(t, drop)
  const start = (rpcUrl: string, line: RegExp) =>
    assertOneLine(['start'], { ...nothingEmbedded, DATABASE_URL: url, CHAIN_RPC_URL: rpcUrl }, line)
  const said = (reason: string) =>
    new RegExp(`^penny: CHAIN_RPC_URL cannot be used: ${reason} \\(\\S+\\)\\. Check the URL and its key\\.$`, 'm')

  const wrongPath = createHttpServer((incoming, outgoing) => outgoing.writeHead(404).end(`No ${incoming.url}`))
  await start(`http://127.0.0.1:${await listen(t, wrongPath)}/v3/${providerKey}`, said('it answers 404'))
  const telling = createHttpServer((incoming, outgoing) => {
    const error = { code: -32_600, message: `no project ${incoming.url} at https://provider.example${incoming.url}` }
    outgoing
      .writeHead(200, { 'content-type': 'application/json' })
      .end(JSON.stringify({ jsonrpc: '2.0', id: 1, error }))
  })
  const keyInPath = `http://127.0.0.1:${await listen(t, telling)}/v3/${providerKey}`
  await start(keyInPath, said('-32600 no project /v3/… at https://provider\\.example/…'))
  await start(`http://127.0.0.1:${await closedPort(t)}/v2/${providerKey}`, said('connect ECONNREFUSED [\\d.:]+'))
  await start(`https://rpc.invalid/v2/${providerKey}`, said('getaddrinfo \\w+ rpc\\.invalid'))
})

/** A node of a chain with that id, which says nothing else. */
async function nodeOf(t: TestContext, chainId: number): Promise<string> {
  const node = createHttpServer(async (incoming, outgoing) => {
    const { id } = JSON.parse((await incoming.toArray()).join('')) as { id: number }
    outgoing.writeHead(200, { 'content-type': 'application/json' })
    outgoing.end(JSON.stringify({ jsonrpc: '2.0', id, result: `0x${chainId.toString(16)}` }))
  })
  return `http://127.0.0.1:${await listen(t, node)}`
}

// Test money would buy real answers, until the comparison freezes the ledger; and deposits would not be seen.
test('a ledger whose money is on another chain is refused in one line', async (t) => {
  const { url, database, drop } = await testDatabase()
  atEnd(t, drop)
  await publishTerms(database, { terms, issuer: terms.seller })
  const settings = { ...nothingEmbedded, DATABASE_URL: url, CHAIN_RPC_URL: await nodeOf(t, 1) }
  const line = new RegExp(
    `^penny: This service would settle on chain 1, but the money of this ledger is on chain ${terms.chainId}\\. Set CHAIN_RPC_URL`,
    'm',
  )
  await assertOneLine(['start'], settings, line)
})

// Deposit addresses of another key, once assigned, stay: customers would send money to them.
test('a ledger of another contract, master key or seller is refused in one line, and the right settings still start', async (t) => {
  const { url, database, drop } = await testDatabase()
  atEnd(t, drop)
  await publishTerms(database, { terms: { ...terms, seller: ownerAddress }, issuer: keys.ofRole('issuer').address })
  const wallet = await newWallet(database)
  await claimPayment(database, signedPayment(wallet, 100n))
  const right = {
    ...nothingEmbedded,
    DATABASE_URL: url,
    DATA_DIR: join(penny.folder, 'another-machine'),
    CHAIN_RPC_URL: await nodeOf(t, terms.chainId),
    USDC_ADDRESS: terms.usdc.address,
    GATEWAY_WALLET_ADDRESS: terms.gatewayWallet,
    MASTER_KEY: masterKey.toString('hex'),
    SELLER_ADDRESS: ownerAddress,
    DEPOSITS_FROM_BLOCK: '1',
  }
  const start = async (changes: Readonly<Record<string, string>>, line: RegExp) => {
    const { code, stderr } = await penny.run(['start'], { ...right, ...changes })
    assert.equal(code, 1, stderr)
    // Before it stands at most the progress: "Starting the signer."
    assert.match(stderr.trimEnd().split('\n').at(-1)!, line)
  }
  await start(
    { USDC_ADDRESS: address('1') },
    /^penny: USDC_ADDRESS is 0x1{40}, but the money of this ledger is at 0x36/,
  )
  await start({ GATEWAY_WALLET_ADDRESS: address('2') }, /^penny: GATEWAY_WALLET_ADDRESS is 0x2{40}, but the money of/)
  await start(
    { MASTER_KEY: 'ab'.repeat(32) },
    /^penny: The master key is not the one of this ledger: .* MASTER_KEY_FILE/,
  )
  const seller = new RegExp(
    `^penny: The seller would be ${terms.seller}, but payments to the seller ${ownerAddress} are still open \\(1\\)`,
  )
  await start({ SELLER_ADDRESS: terms.seller }, seller)
  const service = penny.spawn(['start'], right)
  const exited = once(service, 'exit')
  await until(() => existsSync(join(right.DATA_DIR, 'settlement-endpoints.json')))
  service.kill('SIGTERM')
  await exited
})

test('a start and a gateway remove secrets from their environment; production warns about a master key in a variable', async (t) => {
  const report =
    'process.on("exit",()=>console.error("left:"+Object.keys(process.env).filter((name)=>/KEY|_TOKEN$|DATABASE|RPC/.test(name))))'
  const environment = {
    ...gateway,
    DATABASE_URL: `postgresql://penny:password@127.0.0.1:${await closedPort(t)}/penny`,
    GATEWAY_TOKEN: 'x'.repeat(32),
    GATEWAY_PAYEES: address('3'),
    METRICS_TOKEN: 'secret',
    UPSTREAM_API_KEY: 'secret',
    BRAVE_API_KEY: 'secret',
    NODE_ENV: 'production',
    NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(report)}`,
  }
  for (const command of ['start', 'gateway']) {
    const { code, stderr } = await penny.run([command], environment)
    assert.equal(code, 1, stderr)
    assert.deepEqual(new Set(stderr.match(/^left:.*$/gm)), new Set(['left:']), stderr)
    assert.equal(/^ {2}MASTER_KEY is set in the environment\. Use MASTER_KEY_FILE/m.test(stderr), command === 'start')
  }
})
