import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { childEnvironment, pennyProgram } from '../support/child-environment.ts'
import { createWallet, DashboardClient, signedMessage } from '../support/dashboard-client.ts'

// The whole service, its helpers included, at the level where it talks most. What reaches the log stays there for years.

const folder = mkdtempSync(join(tmpdir(), 'penny-log-'))
const dataDir = join(folder, 'data')
const masterKey = `${'c0ffee'.repeat(10)}beef`
const words = {
  prompt: 'xyzzy-prompt-plover',
  page: 'xyzzy-page-plover.example',
  tool: 'xyzzy_tool_plover',
  cookie: 'xyzzy-cookie-plover',
  user: 'xyzzy-user-plover',
  idempotency: 'xyzzy-idempotency-plover',
}

type Line = Record<string, unknown>

let lines: Line[]
let text: string
let apiKey: string
let visit: Visit

/** Actions in the dashboard, and every secret in them. */
type Visit = {
  readonly accountId: string
  readonly keyId: string
  readonly withdrawalId: string
  readonly wallets: readonly string[]
  readonly network: string
  readonly secrets: readonly string[]
  /** A person who closed their own account. */
  readonly left: { readonly accountId: string; readonly network: string }
}

const owner = '0x70997970c51812dc3a010c7d01b50e0d17dc79c8'

before(async () => {
  const child = spawn(process.execPath, [...pennyProgram(), 'start'], {
    cwd: folder,
    env: {
      ...childEnvironment,
      HOME: folder,
      DATA_DIR: dataDir,
      PORT: '0',
      LOG_LEVEL: 'trace',
      MASTER_KEY: masterKey,
      SANDBOX_TOKENS_PER_SECOND: '0',
      UPSTREAM_FIRST_BYTE_MS: '15000',
      TRUST_PROXY: '1',
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  text = ''
  child.stderr.on('data', (piece) => (text += piece))
  let printed = ''
  await new Promise<void>((resolve, reject) => {
    child.stdout.on('data', (piece) => {
      printed += piece
      if (printed.includes('Ctrl-C stops everything.')) resolve()
    })
    child.once('exit', (code) => reject(new Error(`it ended with ${code}: ${text}`)))
  })
  child.removeAllListeners('exit')
  const sandbox = JSON.parse(readFileSync(join(dataDir, 'sandbox.json'), 'utf8')) as {
    base_url: string
    api_key: string
  }
  apiKey = sandbox.api_key
  await everyKindOfRequest(sandbox.base_url)
  visit = await everyKindOfDeed(new URL(sandbox.base_url).origin)
  const exited = once(child, 'exit')
  child.kill('SIGTERM')
  await exited
  lines = text.split('\n').flatMap((line) => (line.startsWith('{') ? [JSON.parse(line) as Line] : []))
})
after(() => rmSync(folder, { recursive: true, force: true }))

/** Answered, streamed, repeated, refused, failed in every way that has words in it, and left. */
async function everyKindOfRequest(baseUrl: string): Promise<void> {
  const send = async (content: string, more: object = {}, headers: Record<string, string> = {}) => {
    const response = await fetch(`${baseUrl}/chat/completions`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${apiKey}`,
        'content-type': 'application/json',
        cookie: `session=${words.cookie}`,
        ...headers,
      },
      body: JSON.stringify({
        messages: [{ role: 'user', content: `${content} ${words.prompt}` }],
        user: words.user,
        max_tokens: 500,
        ...more,
      }),
    })
    await response.text()
    return response
  }
  // Runs beside the others: the limit for the first byte is long, so that only this request exceeds it on a busy machine.
  const late = send('[sandbox:delay 60000]')
  assert.equal((await send('What is a')).status, 200)
  await send('What is a', { stream: true })
  for (let time = 0; time < 2; time += 1) await send('Again', {}, { 'idempotency-key': words.idempotency })
  await send('Search the web for')
  await send(`Read https://${words.page}/`)
  await send('Call it', {
    tools: [{ type: 'function', function: { name: words.tool, parameters: { type: 'object', properties: {} } } }],
  })
  for (const directive of ['error 400', 'error 401', 'error 429', 'error 500', 'fail-after 3', 'cut-after 3'])
    await send(`[sandbox:${directive}]`)
  for (const directive of ['fail-after 30', 'cut-after 30', 'end-after 30', 'error-event-after 30', 'usage {"a":"b"}'])
    await send(`[sandbox:${directive}]`, { stream: true })
  await send('[sandbox:nonsense]')
  await send('Refused', { temperature: words.prompt })
  await send('Refused', { model: words.prompt })
  await send('Refused', {}, { authorization: `Bearer ${apiKey.slice(0, -1)}!` })
  await fetch(`${baseUrl}/${words.page}?q=${words.prompt}`, { headers: { cookie: words.cookie } })
  await fetch(`${baseUrl}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
    body: `{"${words.prompt}`,
  })
  assert.equal((await late).status, 504)
}

/** All events that change access to the account's money, or its withdrawal address. */
async function everyKindOfDeed(origin: string): Promise<Visit> {
  const client = new DashboardClient({ origin })
  const { account } = await client.post('/api/auth/local')
  const created = await client.post('/api/keys', { name: words.prompt })
  await client.patch(`/api/keys/${created.id}`, { limit: '1.5', name: words.user })
  const rotated = await client.post(`/api/keys/${created.id}/rotate`)
  await client.delete(`/api/keys/${created.id}`)
  assert.equal((await client.send('PUT', '/api/owner', { address: owner })).status, 200)
  const form = { 'idempotency-key': words.idempotency }
  const withdrawal = await client.post('/api/withdrawals', { amount: '2', recipient: owner }, form)
  const [kept, removed] = [createWallet(), createWallet()]
  const signed = await signedMessage(client, kept)
  await client.post('/api/wallets', signed)
  await client.post('/api/wallets', await signedMessage(client, removed))
  await client.delete(`/api/wallets/${removed.address}`)
  const token = client.cookie!.split('=')[1]!
  const leaver = new DashboardClient({ origin })
  const left = await leaver.post('/api/auth/wallet', await signedMessage(leaver, createWallet()))
  await leaver.delete('/api/account')
  return {
    left: { accountId: left.account.id, network: leaver.address },
    accountId: account.id,
    keyId: created.id,
    withdrawalId: withdrawal.id,
    wallets: [kept.address.toLowerCase(), removed.address.toLowerCase()],
    network: client.address,
    secrets: [created.secret, rotated.secret, token, signed.signature],
  }
}

test('every change of who may spend an account’s money is logged once, with its actor and without a secret', () => {
  const { accountId, keyId, withdrawalId, wallets, network, secrets, left } = visit
  const trail = lines.filter(({ msg, account_id }) => msg === 'account' && account_id === accountId)
  const by = { method: 'local', network }
  assert.deepEqual(
    trail.map(({ level, time, msg, account_id, ...said }) => said),
    [
      { event: 'signed_in', ...by },
      { event: 'key_created', ...by, key_id: keyId },
      { event: 'key_changed', ...by, key_id: keyId, changed: ['name', 'limit'], limit: '1500000' },
      { event: 'key_rotated', ...by, key_id: keyId },
      { event: 'key_revoked', ...by, key_id: keyId },
      { event: 'owner_changed', ...by, address: owner },
      { event: 'withdrawal_requested', ...by, withdrawal_id: withdrawalId, amount: '2000000' },
      { event: 'wallet_added', ...by, address: wallets[0] },
      { event: 'wallet_added', ...by, address: wallets[1] },
      { event: 'wallet_removed', ...by, address: wallets[1] },
    ],
  )
  for (const secret of secrets) assert.ok(!text.includes(secret))
  const ofLeaver = lines.filter(({ msg, account_id }) => msg === 'account' && account_id === left.accountId)
  const { event, method, network: from } = ofLeaver.at(-1)!
  assert.deepEqual([event, method, from], ['account_closed', 'wallet', left.network])
})

test('no prompt, no answer, no key, no cookie and no master key reaches the log at any level', () => {
  for (const [what, word] of Object.entries({ ...words, masterKey, apiKey })) assert.ok(!text.includes(word), what)
  // The sandbox model's answers to this question speak of coins.
  assert.doesNotMatch(text, /small coin|I looked at/)
  const stored = readFileSync(join(dataDir, 'gateway-operator.key'), 'utf8').trim()
  assert.ok(!text.includes(stored))
})

test('each request is one line with its id, how it ended, its tokens, its charge and its time', () => {
  const requests = lines.filter(({ msg }) => msg === 'request')
  const succeeded = requests.filter(({ status }) => status === 'succeeded')
  assert.ok(succeeded.length >= 5)
  for (const line of succeeded) {
    assert.match(String(line.request_id), /^req_[0-9a-f]{32}$/)
    assert.deepEqual([line.model, typeof line.ms, typeof line.input_tokens], ['gpt-5.6-terra', 'number', 'number'])
    assert.match(String(line.charged), /^[1-9]\d*$/)
  }
  const codes = new Set(requests.map(({ code }) => code))
  for (const code of [
    'upstream_error',
    'overloaded',
    'upstream_timeout',
    'invalid_value',
    'invalid_json',
    'model_not_found',
    'invalid_api_key',
  ])
    assert.ok(codes.has(code), code)
  assert.equal(requests.filter(({ status }) => status === 'replayed').length, 1)
  assert.equal(
    new Set(requests.filter(({ status }) => status !== 'replayed').map(({ request_id: id }) => id)).size,
    requests.length - 1,
  )
})

test('what went wrong is in the log with the place it came from, without the words of its message', () => {
  const failures = lines.filter(({ msg }) => msg === 'a request failed')
  assert.ok(failures.length >= 8)
  for (const { err } of failures as { err: { type: string; code: string; stack: string; message?: string } }[]) {
    assert.match(err.code, /^[a-z_]+$/)
    assert.equal(err.message, undefined)
  }
})

test('a request that the model refused is one line, at info', () => {
  const refused = lines.filter(({ status, code }) => status === 'failed' && code === 'invalid_value')
  assert.ok(refused.length >= 2)
  for (const { request_id: id } of refused) {
    const own = lines.filter(({ request_id }) => request_id === id)
    assert.deepEqual(
      own.map(({ msg, level }) => [msg, level]),
      [['request', 30]],
    )
  }
})
