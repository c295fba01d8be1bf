import assert from 'node:assert/strict'
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { stripVTControlCharacters } from 'node:util'
import { widthOf } from '../../src/commands/table.ts'
import { parse } from '../../src/money/usdc.ts'
import { createWallet, DashboardClient, signedMessage } from '../support/dashboard-client.ts'
import { preparePenny } from '../support/penny-command.ts'
import { until } from '../support/until.ts'

// Every command as an operator runs it: beside a running service, given only its data folder.

const penny = preparePenny({ keepsProcess: true })
let service: ChildProcess
before(async () => {
  service = await penny.start()
})
after(async () => {
  const exited = once(service, 'exit')
  service.kill('SIGTERM')
  await exited
  penny.remove()
})

type Chat = {
  request_id: string
  content: string
  usage: { prompt_tokens: number; completion_tokens: number; cost: number }
}
type Balance = { account_id: string; available_atomic: string; charged_atomic: string; credit_atomic: string }

const chat = (words: string) => penny.json<Chat>(['chat', words, '--no-web'])

test('penny chat writes the answer and what it cost; the request’s bill adds up to that', async () => {
  const told = await penny.run(['chat', 'What', 'is', 'a', 'penny?', '--no-web'])
  assert.equal(told.code, 0)
  assert.match(told.stdout, /0\.\d+ USDC · \d+ tokens read, \d+ written · req_[0-9a-f]{32}\n$/)
  const piped = await penny.run(['chat', '-', '--json'], {}, 'What is a penny?')
  assert.ok((JSON.parse(piped.stdout) as Chat).content.length > 0)

  const answer = await chat('What is a penny?')
  const row = await penny.json<{ id: string; charged: string }>(['requests', 'get', answer.request_id])
  assert.deepEqual([row.id, Number(row.charged)], [answer.request_id, answer.usage.cost])
  const bill = (await penny.run(['requests', 'get', answer.request_id, '--explain'])).stdout
  assert.match(bill, new RegExp(`input tokens +${answer.usage.prompt_tokens} × 1 a million`))
  assert.match(bill, new RegExp(`output tokens +${answer.usage.completion_tokens} × 5 a million`))
  assert.match(bill, new RegExp(`^Charged +${row.charged.replace('.', '\\.')}$`, 'm'))
})

// A short answer may be all reasoning: without a word about it the reader sees nothing, and paid for it.
test('penny chat says that an answer was cut, and what allows more', async () => {
  const cut = await penny.run(['chat', 'Hi', '--no-web', '--max-tokens', '20'])
  assert.match(cut.stdout, /20 written, cut off; raise --max-tokens to get more · req_/)
})

test('penny quote says the most that a question can cost, and penny chat then costs no more', async () => {
  const quote = await penny.json<{ quote_atomic: string; admitted: boolean }>(['quote', 'What is a penny?', '--no-web'])
  assert.equal(quote.admitted, true)
  const firm = await penny.run(['quote', 'What is a penny?', '--no-web'])
  assert.match(firm.stdout, /^At most 0\.\d+ USDC on /m)
  assert.doesNotMatch(firm.stdout, /searches the web/)
  const open = await penny.run(['quote', 'What is a penny?'])
  assert.match(open.stdout, /^Up to 0\.\d+ USDC more if the model searches the web \(--no-web turns that off\)\.$/m)
  const { usage } = await chat('What is a penny?')
  assert.ok(usage.cost * 1e6 <= Number(quote.quote_atomic))
  const poor = await penny.json<{ api_key: string }>(['keys', 'create', '--name', 'poor', '--limit', '0.000001'])
  const dear = await penny.run(['quote', 'Much?', '--key', poor.api_key])
  assert.equal(dear.code, 1)
  assert.match(dear.stdout, /It would be refused now/, dear.stderr)
})

test('a command prints the service’s error, and one line when the service is down', async () => {
  const refused = await penny.run(['chat', 'Hi', '--model', 'no-such-model'])
  assert.deepEqual([refused.code, /^penny: 404: .*no-such-model/.test(refused.stderr)], [1, true])
  const away = await penny.run(['chat', 'Hi', '--url', 'http://127.0.0.1:9/v1'])
  assert.deepEqual(
    [away.code, /^penny: The service at http:\/\/127\.0\.0\.1:9\/v1 does not respond/.test(away.stderr)],
    [1, true],
  )
})

// A word that nobody read was meant as an account: the money of another one moved.
test('a word that means nothing to a command is refused, and nothing moves', async () => {
  const { available_atomic: before } = await penny.json<Balance>(['balance'])
  for (const words of [
    ['balance'],
    ['deposit'],
    ['faucet'],
    ['withdraw', '--amount', 'all'],
    ['keys', 'list', 'more'],
  ]) {
    const { code, stderr } = await penny.run([...words, 'other'])
    assert.equal(code, 2)
    assert.match(stderr, /^penny: Unexpected argument "other"\. See penny \w+ --help\.\n$/)
  }
  assert.equal((await penny.json<Balance>(['balance'])).available_atomic, before)
})

test('a wrong amount, order or address is reported in one line with the expected form', async () => {
  for (const [words, code, told] of [
    [
      ['faucet', '--amount', 'much'],
      2,
      /^penny: --amount must be an amount of USDC such as 2\.50: not negative, with at most six decimals\. Got "much"\.\n$/,
    ],
    [['faucet', '--amount', '0'], 1, /it gives 0\.000001 to 1000000 USDC per request, not 0\.\n$/],
    [
      ['withdraw', '--amount', 'much'],
      2,
      /^penny: --amount must be an amount of USDC such as 2\.50: not negative, with at most six decimals\. Got "much"\.\n$/,
    ],
    [
      ['payout', '--amount', 'much'],
      2,
      /^penny: --amount must be an amount of USDC such as 2\.50: not negative, with at most six decimals\. Got "much"\.\n$/,
    ],
    [['withdraw', '--amount', '1', '--yes'], 1, /^penny: No withdrawal address is registered .* Use --to 0x….\n$/],
    [['withdraw', '--amount', '1', '--to', '0x12', '--yes'], 1, /^penny: 0x12 cannot receive withdrawals\. [^\n]*\n$/],
    [['withdraw', '--amount', '1', '--id', 'x'], 2, /^penny: --id must be the UUID[^\n]*\n$/],
  ] as const) {
    const refused = await penny.run([...words])
    assert.equal(refused.code, code, refused.stderr)
    assert.match(refused.stderr, told)
  }
})

// There is no prompt in a pipe: commands that move money need --yes there.
test('money moves only after a yes', async () => {
  const { account_id: id, available_atomic: before } = await penny.json<Balance>(['balance'])
  for (const [words, question] of [
    [
      ['withdraw', '--amount', '1', '--to', `0x${'7'.repeat(40)}`],
      /Withdraw 1 USDC of Sandbox demo .* register that address/,
    ],
    [
      ['accounts', 'adjust', id, '--amount', '0.0001', '--reason', 'gift'],
      /Refund 0\.0001 USDC as credit to Sandbox demo/,
    ],
  ] as const) {
    const { code, stderr } = await penny.run(words)
    assert.deepEqual([code, question.test(stderr), / Add --yes to confirm\.\n$/.test(stderr)], [2, true, true], stderr)
  }
  assert.equal((await penny.json<Balance>(['balance'])).available_atomic, before)
})

test('a key is addressed by its name, and a name that two keys have asks for the id', async () => {
  const create = (name: string) => penny.json<{ id: string }>(['keys', 'create', '--name', name])
  const { id } = await create('prod-web')
  assert.match((await penny.run(['keys', 'update', 'prod-web'])).stderr, /Nothing to change\. Add an option/)
  assert.equal((await penny.run(['keys', 'update', 'prod-web', '--limit', '2'])).code, 0)
  const revoke = () => penny.run(['keys', 'revoke', 'prod-web'])
  assert.match((await revoke()).stdout, new RegExp(`^Revoked "prod-web" \\(${id}\\)`))
  assert.match((await revoke()).stdout, /was already revoked, at 20/)
  assert.equal((await penny.run(['keys', 'update', 'prod-web', '--limit', '1'])).code, 1)
  const twins = [await create('twin'), await create('twin')]
  const { code, stderr } = await penny.run(['keys', 'revoke', 'twin'])
  assert.equal(code, 2)
  for (const twin of twins) assert.ok(stderr.includes(twin.id))
  assert.equal((await penny.run(['keys', 'revoke', twins[0]!.id.slice(0, 13)])).code, 0)
  // The one that is left is meant.
  assert.equal((await penny.run(['keys', 'revoke', 'twin'])).code, 0)
  assert.match((await penny.run(['keys', 'revoke', 'nobody'])).stderr, /No key is named "nobody"/)
})

test('penny statement closes on the balance, and by key sums to the same charges', async () => {
  type Line = { what: string; amount: string }
  const lines = await penny.json<Line[]>(['statement'])
  const of = (what: string) => lines.filter((line) => line.what === what)
  assert.deepEqual([lines[0]!.what, lines.at(-1)!.what], ['opening_balance', 'closing_balance'])
  const atomic = (rows: readonly { amount: string }[]) => rows.reduce((sum, { amount }) => sum + parse(amount), 0n)
  const byKey = await penny.json<{ amount: string }[]>(['statement', '--by', 'key'])
  assert.ok(byKey.length > 0)
  assert.equal(atomic(byKey), atomic([...of('inference'), ...of('search')]))
  assert.equal((await penny.run(['statement', '--month', '2026-13'])).code, 2)
})

test('penny keys restricts a key when it is created and later, and shows the restrictions', async () => {
  const options = [
    '--models',
    'gpt-5.6-luna,gpt-5.6-sol',
    '--max-cost',
    '0.05',
    '--web-tools',
    'off',
    '--ips',
    '::1,10.0.0.0/8',
  ]
  await penny.json(['keys', 'create', '--name', 'careful', ...options])
  const shown = async () => {
    const keys = await penny.json<Record<string, unknown>[]>(['keys', 'list'])
    const { models, max_cost, web_tools, ips } = keys.find(({ name }) => name === 'careful')!
    return { models, max_cost, web_tools, ips }
  }
  const first = { models: 'gpt-5.6-luna,gpt-5.6-sol', max_cost: '0.05', web_tools: 'off', ips: '::1,10.0.0.0/8' }
  assert.deepEqual(await shown(), first)
  assert.equal((await penny.run(['keys', 'update', 'careful', '--limit', '2'])).code, 0)
  assert.deepEqual(await shown(), first)
  const lifted = ['--models', 'all', '--max-cost', 'none', '--web-tools', 'on', '--ips', 'all']
  assert.equal((await penny.run(['keys', 'update', 'careful', ...lifted])).code, 0)
  assert.deepEqual(await shown(), { models: null, max_cost: null, web_tools: null, ips: null })
})

test('a wrong command line prints the right usage', async () => {
  for (const [words, told] of [
    [['keys', 'create', '--name', 'a', '--models', 'gpt-9'], /unknown model "gpt-9"\. The models are .*gpt-5\.6-luna/],
    [
      ['keys', 'create', '--name', 'a', '--ips', '10.0.0.0/40'],
      /--ips: .*"10\.0\.0\.0\/40"; it must be an IPv4 or IPv6 address or CIDR block/,
    ],
    [['keys', 'create', '--name', 'a', '--max-cost', '0'], /--max-cost: .* must be above 0/],
    [['keys', 'create', '--name', 'a', '--web-tools', 'no'], /--web-tools must be on or off\. Got "no"/],
    [['strat'], /Unknown command "strat"\. penny --help lists all commands\./],
    [['keys', 'create', '--limit', '1'], /Give the key a name: --name NAME/],
    [['keys', 'create', '--name', 'late', '--expires', '2020-01-01T00:00:00Z'], /--expires: .* is in the past/],
    [['keys', 'create', '--name', 'fine', '--limit', '0.0000001'], /--limit: .*with at most six decimals/],
    [['keys', 'create', '--name', 'less', '--limit', '-1'], /--limit: .* must be an amount of USDC/],
    [
      ['logs', 'tail', '--status', 'weird'],
      /--status must be one of succeeded, failed, cancelled, refused\. Got "weird"/,
    ],
    [['requests', 'get'], /penny requests get req_….*penny requests list/],
    [['ledger', 'adit'], /Unknown command "ledger adit".*ledger audit/],
  ] as const) {
    const { code, stderr } = await penny.run(words)
    assert.equal(code, 2, stderr)
    assert.match(stderr, told)
  }
  assert.match((await penny.run(['--version'])).stdout, /^penny \d+\.\d+\.\d+\n$/)
})

test('in a terminal of 80 columns no line of a table is wider', async () => {
  await penny.json(['keys', 'create', '--name', '東京の鍵', '--limit', '2', '--window', 'day'])
  await chat('Hi')
  for (const words of ['keys', 'accounts', 'usage', 'logs tail --once', 'audit', 'balance']) {
    const { stdout } = await penny.inTerminal(words)
    const lines = stdout.replaceAll('\r', '').split('\n')
    assert.ok(lines.length > 1, stdout)
    assert.deepEqual(
      lines.filter((line) => widthOf(stripVTControlCharacters(line)) > 80),
      [],
      words,
    )
  }
})

test('penny audit says what each invariant means, and what --unfreeze did', async () => {
  assert.match((await penny.run(['audit'])).stdout, /^I3 +holds +no account spends more than it has$/m)
  assert.equal((await penny.run(['audit', '--freeze', 'a drill'])).code, 0)
  const { stdout, code } = await penny.run(['audit', '--unfreeze'])
  assert.equal(code, 0)
  assert.match(stdout, /no longer frozen \(reason: by the operator: a drill\)\. It accepts requests again\.\n$/)
  assert.doesNotMatch(stdout, /is frozen/)
})

test('penny doctor sees the service that runs on the data folder', async () => {
  const { stdout } = await penny.run(['doctor'])
  assert.match(stdout, /✓ service +Penny runs at http:\/\/localhost:\d+ \(process \d+\)\./)
})

test('a customer logs in with a key, and the command is about that service until the logout', async () => {
  const home = mkdtempSync(join(tmpdir(), 'penny-customer-'))
  const run = (words: readonly string[], input?: string) =>
    penny.run(words, { DATA_DIR: join(home, 'none'), XDG_CONFIG_HOME: home }, input)
  try {
    const { base_url: baseUrl } = penny.sandbox()
    const { origin } = new URL(baseUrl)
    const { api_key: key, id } = await penny.json<{ api_key: string; id: string }>([
      ...['keys', 'create', '--name', 'customer', '--limit', '2', '--window', 'day'],
    ])
    const wrong = await run(['login', origin, '--key', 'penny_wrong'])
    assert.deepEqual([wrong.code, /^penny: 401: /.test(wrong.stderr)], [1, true], wrong.stderr)
    assert.equal((await run(['balance'])).code, 1)
    // `--key -` asks for it without showing it: here, from a pipe.
    const login = await run(['login', `${origin}/v1`, '--key', '-'], `${key}\n`)
    assert.match(login.stdout, /^Logged in to http:\/\/localhost:\d+ with the key "customer"\./, login.stderr)
    const file = join(home, 'penny', 'login.json')
    assert.equal(statSync(file).mode & 0o777, 0o600)
    assert.equal((await run(['chat', 'Hi', '--no-web'])).code, 0)
    assert.equal((await run(['quote', 'Hi', '--no-web'])).code, 0)
    const [own] = JSON.parse((await run(['keys', '--json'])).stdout) as { id: string; limit: string; spent: string }[]
    assert.deepEqual([own?.id, own?.limit, Number(own?.spent) > 0], [id, '2', true])
    const balance = JSON.parse((await run(['balance', '--json'])).stdout) as {
      available_atomic: string
      remaining: string
    }
    assert.equal(balance.available_atomic, (await penny.json<Balance>(['balance'])).available_atomic)
    assert.ok(Number(balance.remaining) < 2)
    const { address } = await penny.json<{ address: string }>(['deposit'])
    assert.match((await run(['deposit'])).stdout, new RegExp(`^Send only USDC to ${address}\\n`))
    const answer = await fetch(`${origin}/api/key`, { headers: { authorization: `Bearer ${key}` } })
    const { deposit_address } = (await answer.json()) as { deposit_address: string }
    assert.equal(deposit_address, address.toLowerCase())
    const usage = JSON.parse((await run(['usage', '--days', '2', '--json'])).stdout) as { requests: number }[]
    assert.ok(usage.at(-1)!.requests > 0)
    assert.match((await run(['logs', 'tail', '--once'])).stdout, / succeeded .* req_[0-9a-f]{32}/)
    const create = await run(['keys', 'create', '--name', 'more'])
    assert.equal(create.code, 1)
    assert.match(create.stderr, /An API key is not enough.* penny login URL --key penny_mgmt_…/)
    assert.equal((await run(['logout'])).code, 0)
    assert.equal(existsSync(file), false)
    assert.equal((await run(['balance'])).code, 1)
  } finally {
    rmSync(home, { recursive: true, force: true })
  }
})

test('with a management key a customer manages the account from the command line, and cannot spend', async () => {
  const home = mkdtempSync(join(tmpdir(), 'penny-manager-'))
  const run = (...words: string[]) => penny.run(words, { DATA_DIR: join(home, 'none'), XDG_CONFIG_HOME: home })
  try {
    const { origin } = new URL(penny.sandbox().base_url)
    const person = new DashboardClient({ origin })
    await person.post('/api/auth/wallet', await signedMessage(person, createWallet()))
    const scopes = ['keys:write', 'usage:read', 'webhooks:write']
    const { secret } = await person.post('/api/management-keys', { name: 'laptop', scopes })
    const wrong = await run('login', origin, '--key', `${secret.slice(0, -4)}0000`)
    assert.deepEqual([wrong.code, /^penny: 401: /.test(wrong.stderr)], [1, true], wrong.stderr)
    assert.match((await run('login', origin, '--key', secret)).stdout, /^Logged in to http\S+ with a management key/)
    const created = await run('keys', 'create', '--name', 'deploy', '--limit', '1', '--json')
    assert.equal(created.code, 0, created.stderr)
    assert.equal((await person.get(`/api/keys/${JSON.parse(created.stdout).id}`)).limit, '1')
    assert.match((await run('balance')).stdout, /^available +0\.000000 {2}can be spent now$/m)
    assert.match((await run('webhooks', 'list')).stdout, /^None yet/)
    assert.equal((await run('statement')).code, 0)
    assert.match((await run('chat', 'Hi')).stderr, /No API key/)
    const foreign = await run('keys', 'list', '--account', 'Sandbox demo')
    assert.deepEqual([foreign.code, /--account is for the operator/.test(foreign.stderr)], [2, true])
  } finally {
    rmSync(home, { recursive: true, force: true })
  }
})

test('penny api calls every operation that a key may call, with the fields of its contract as options', async () => {
  type Made = { id: string; limit: string; limit_window: string; allowed_models: string[]; web_tools: boolean }
  const made = await penny.json<Made>([
    ...['api', 'createKey', '--name', 'generated', '--limit', '3', '--limit-window', 'week'],
    ...['--allowed-models', 'gpt-5.6-luna,gpt-5.6-sol', '--web-tools', 'off'],
  ])
  assert.deepEqual(
    [made.limit, made.limit_window, made.allowed_models, made.web_tools],
    ['3', 'week', ['gpt-5.6-luna', 'gpt-5.6-sol'], false],
  )
  const lifted = await penny.json<Made>([
    'api',
    'updateKey',
    '--id',
    made.id,
    '--limit',
    'none',
    '--allowed-models',
    'all',
  ])
  assert.deepEqual([lifted.limit, lifted.allowed_models], [null, []])
  const { deposit_address: address } = await penny.json<{ deposit_address: string }>([
    'api',
    'listDeposits',
    '--limit',
    '1',
  ])
  assert.match(address, /^0x/)
  assert.match((await penny.run(['api', 'getUsage', '--help'])).stdout, /--group-by +none\|/)
  assert.match((await penny.run(['api'])).stdout, /^ {2}createKey +Create an API key/m)
  for (const [words, told] of [
    [['createKey'], /createKey needs --name/],
    [['createKey', '--name', 'x', '--limit-window', 'year'], /--limit-window: .*must be one of/],
    [['createKey', '--nmae', 'x'], /Unknown option --nmae/],
    [['createWithdrawal'], /There is no operation "createWithdrawal"/],
  ] as const) {
    const { code, stderr } = await penny.run(['api', ...words])
    assert.equal(code, 2, stderr)
    assert.match(stderr, told)
  }
})

// The control port serves the API for any account: only who can read the data folder may use it.
test('a command of the operator is in the account log as the operator; without the token of the data folder nothing is answered', async () => {
  const { origin } = new URL(penny.sandbox().base_url)
  const person = new DashboardClient({ origin })
  const { account } = await person.post('/api/auth/wallet', await signedMessage(person, createWallet()))
  const { id } = await penny.json<{ id: string }>(['keys', 'create', '--name', 'for them', '--account', account.id])
  const [row] = (await person.get('/api/log')).data
  assert.deepEqual([row.event, row.actor.kind, row.facts.key_id], ['key_created', 'operator', id])
  const file = join(penny.dataDir, 'control.json')
  assert.equal(statSync(file).mode & 0o777, 0o600)
  const { url, token } = JSON.parse(readFileSync(file, 'utf8')) as { url: string; token: string }
  const ask = async (at: string, path: string, authorization: string) =>
    (await fetch(`${at}${path}`, { headers: { authorization, 'x-router-account': account.id } })).status
  assert.equal(await ask(url, '/api/keys', `Bearer ${token}`), 200)
  assert.equal(await ask(url, '/api/keys', 'Bearer wrong'), 401)
  assert.equal(await ask(origin, '/api/keys', `Bearer ${token}`), 401)
  // For people only, also on that port.
  assert.equal(await ask(url, '/api/sessions', `Bearer ${token}`), 403)
  assert.equal(await ask(url, '/api/key', `Bearer ${token}`), 403)
})

// In the wrong folder an audit once created a new, empty ledger and reported it as correct.
test('a command in a folder without a service says so, and leaves nothing there', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'penny-elsewhere-'))
  try {
    for (const words of [['audit'], ['migrate'], ['accounts', 'create', '--name', 'lost']]) {
      const { code, stdout, stderr } = await penny.run(words, { DATA_DIR: folder })
      assert.deepEqual([code, stdout], [1, ''])
      assert.match(stderr, /^penny: There is no database in [^\n]+\. Set DATA_DIR to [^\n]*\n$/)
    }
    assert.deepEqual(readdirSync(folder), [])
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})

test('penny keys list shows the keys of one account where one is named', async () => {
  await penny.json(['accounts', 'create', '--name', 'keyless'])
  assert.deepEqual(await penny.json(['keys', 'list', '--account', 'keyless']), [])
  assert.match(
    (await penny.run(['keys', 'list', '--account', 'nobody'])).stderr,
    /^penny: No account has the id or name "nobody"\. penny accounts lists all accounts\.\n$/,
  )
})

test('penny accounts shows which accounts are closed, and no key is created in a closed one', async () => {
  const leaver = new DashboardClient({ origin: penny.sandbox().base_url.slice(0, -'/v1'.length) })
  const { account } = await leaver.post('/api/auth/wallet', await signedMessage(leaver, createWallet()))
  await leaver.delete('/api/account')
  const accounts = await penny.json<{ id: string; name: string; closed_at: string | null }[]>(['accounts'])
  assert.deepEqual(
    accounts.filter(({ closed_at }) => closed_at !== null).map(({ id, name }) => [id, name]),
    [[account.id, `Account ${account.id.slice(0, 8)}`]],
  )
  const refused = await penny.run(['keys', 'create', '--account', account.id, '--name', 'late'])
  assert.deepEqual([refused.code, refused.stdout], [1, ''])
  assert.match(refused.stderr, /^penny: This account was closed\. [^\n]*\n$/)
})

test('penny balance and penny usage tell the same sums as the ledger’s rows', async () => {
  const before = await penny.json<Balance>(['balance'])
  const { usage } = await chat('What is a penny?')
  const after = await penny.json<Balance>(['balance'])
  const cost = Math.round(usage.cost * 1e6)
  assert.equal(Number(before.available_atomic) - Number(after.available_atomic), cost)
  assert.match((await penny.run(['balance'])).stdout, /^available +24\.\d+ {2}can be spent now$/m)
  const byDay = await penny.json<{ day: string; charged_atomic: string }[]>(['usage'])
  assert.equal(
    byDay.reduce((sum, row) => sum + Number(row.charged_atomic), 0),
    Number(after.charged_atomic),
  )
  const byKey = await penny.json<{ key: string; requests: number }[]>(['usage', '--by', 'key'])
  assert.ok(byKey.some(({ key }) => key === 'Sandbox demo key'))
  assert.equal((await penny.run(['usage', '--by', 'moon'])).code, 2)
})

test('penny logs tail follows requests as they end, one line each', async () => {
  const tail = penny.spawn(['logs', 'tail', '--last', '0', '--json'])
  let text = ''
  tail.stdout!.on('data', (piece) => (text += piece))
  // It follows once it has told of one; what ended before that is not its to tell.
  while (text === '') {
    await chat('Do you follow?')
    await pause(50)
  }
  const answer = await chat('Follow me')
  await until(() => text.includes(answer.request_id))
  const exited = once(tail, 'exit')
  tail.kill('SIGINT')
  assert.deepEqual(await exited, [0, null])
  const lines = text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as { id: string; status: string })
  assert.equal(new Set(lines.map(({ id }) => id)).size, lines.length)
  assert.ok(lines.every(({ status }) => status === 'succeeded'))
  // `penny logs tail | head -1`
  const unread = penny.spawn(['logs', 'tail', '--last', '1'])
  await once(unread.stdout!, 'data')
  unread.stdout!.destroy()
  while (unread.exitCode === null) {
    await chat('Is anybody there?')
    await pause(50)
  }
  assert.equal(unread.exitCode, 0)
  const last = await penny.run(['logs', 'tail', '--once', '--last', '3'])
  assert.match(last.stdout, /^(\d\d:\d\d:\d\d\.\d{3} {2}succeeded {2}.*req_[0-9a-f]{32}\n){3}$/)
})

test('a suspended account is refused with 403 and can be resumed', async () => {
  const { account_id: id } = await penny.json<Balance>(['balance'])
  assert.equal((await penny.run(['accounts', 'suspend', id])).code, 2)
  assert.equal((await penny.run(['accounts', 'suspend', id, '--reason', 'abuse'])).code, 0)
  const refused = await penny.run(['chat', 'Hi'])
  assert.match(refused.stderr, /^penny: 403: This account is suspended/)
  const quoted = await penny.run(['quote', 'Hi'])
  assert.match(quoted.stdout, /would be refused now: This account is suspended/, quoted.stderr)
  assert.equal((await penny.run(['accounts', 'resume', id])).code, 0)
  assert.equal((await penny.run(['chat', 'Hi', '--no-web'])).code, 0)
})

test('a charge is refunded only from settled revenue, with a reason, and the ledger balances', async () => {
  const { account_id: id, charged_atomic: charged } = await penny.json<Balance>(['balance'])
  const beyond = await penny.run(['accounts', 'adjust', id, '--amount', '20', '--reason', 'too much', '--yes'])
  assert.deepEqual([beyond.code, /settled revenue/.test(beyond.stderr)], [1, true])
  assert.equal((await penny.run(['accounts', 'adjust', id, '--amount', '0.0001'])).code, 2)
  // What is given has to be on chain first.
  await until(async () => {
    const { payable } = await penny.json<{ payable: string }>(['payout'])
    return Number(payable) >= 0.0001
  })
  const before = await penny.json<Balance>(['balance'])
  const given = await penny.json<{ id: string; decision: string }>([
    'accounts',
    'adjust',
    id,
    '--amount',
    '0.0001',
    '--reason',
    'the model was down',
    '--yes',
  ])
  assert.equal(given.decision, 'made')
  const again = await penny.json<{ decision: string }>([
    'accounts',
    'adjust',
    id,
    '--amount',
    '0.0001',
    '--reason',
    'again',
    '--id',
    given.id,
    '--yes',
  ])
  assert.equal(again.decision, 'stored')
  const after = await penny.json<Balance>(['balance'])
  assert.equal(Number(after.available_atomic) - Number(before.available_atomic), 100)
  const [row] = await penny.json<{ amount: string; reason: string; made_by: string }[]>(['accounts', 'adjustments', id])
  assert.deepEqual([row!.amount, row!.reason, row!.made_by.includes('@')], ['0.0001', 'the model was down', true])
  assert.equal(
    (await penny.run(['accounts', 'adjust', id, '--amount', '-0.0001', '--reason', 'by mistake', '--yes'])).code,
    0,
  )
  assert.equal((await penny.run(['audit'])).code, 0)
  assert.ok(Number(charged) > 0)
})

test('penny config names every variable with its origin, and shows no secret', async () => {
  const key = join(penny.folder, 'upstream.key')
  writeFileSync(key, 'sk-secret-in-a-file')
  const { stdout, code } = await penny.run(['config', '--json'], {
    DATABASE_URL: 'postgresql://penny:hunter2@db.example:5432/penny',
    UPSTREAM_BASE_URL: 'https://api.example.com/v1',
    UPSTREAM_API_KEY_FILE: key,
    METRICS_TOKEN: 'hunter3',
    OTEL_EXPORTER_OTLP_ENDPOINT: 'https://otel.example/abcdefghijklmnopqrstuvwxyz012345',
    PORT: '9999',
  })
  assert.equal(code, 0)
  const entries = JSON.parse(stdout) as { name: string; value: string | null; origin: string }[]
  const shown = (name: string) => {
    const { value, origin } = entries.find((entry) => entry.name === name)!
    return [value, origin]
  }
  assert.deepEqual(shown('PORT'), ['9999', 'environment'])
  assert.deepEqual(shown('HOST'), ['127.0.0.1', 'default'])
  assert.deepEqual(shown('DATABASE_URL'), ['postgresql://penny:(hidden)@db.example:5432/penny', 'environment'])
  assert.deepEqual(shown('UPSTREAM_API_KEY'), ['(hidden)', 'file'])
  assert.deepEqual(shown('METRICS_TOKEN'), ['(hidden)', 'environment'])
  assert.deepEqual(shown('OTEL_EXPORTER_OTLP_ENDPOINT'), ['https://otel.example/(hidden)', 'environment'])
  assert.doesNotMatch(stdout, /hunter|sk-secret|abcdefghijkl/)
})

test('penny migrate says what is pending and finds nothing to do beside a running service', async () => {
  assert.deepEqual(await penny.json(['migrate', 'pending']), { pending: [], applied: [] })
  assert.match((await penny.run(['migrate'])).stdout, /Nothing to do/)
})

test('penny config NAME explains one setting, and refuses a mistyped one', async () => {
  const port = await penny.run(['config', 'port'], { PORT: '9999' })
  assert.match(
    port.stdout,
    /^PORT: Port of the service.*\nDefault: 8402\nAllowed: 0 to 65535\nNow: 9999 \(environment\)\n$/,
  )
  // Only `penny gateway` reads this one.
  const relayer = await penny.run(['config', 'GATEWAY_PORT', '--json'])
  assert.deepEqual([JSON.parse(relayer.stdout).value, JSON.parse(relayer.stdout).default], [null, '8403'])
  const mistyped = await penny.run(['config', 'DATA_DRI'])
  assert.equal(mistyped.code, 2)
  assert.match(mistyped.stderr, /Unknown setting DATA_DRI\. penny config lists all\./)
})

test('penny --help fits one screen, and every word in it leads to a command or lists its verbs', async () => {
  const help = (await penny.run(['--help'])).stdout
  const words = [...help.matchAll(/^ {2}(\S+)/gm)].map(([, word]) => word!)
  assert.ok(words.length <= 25, String(words.length))
  for (const word of words) {
    const { code, stdout } = await penny.run([word, '--help'])
    assert.deepEqual([code, stdout.includes(`penny ${word}`)], [0, true], word)
  }
})

test('penny status is one screen: service, balance, key, today; and penny open prints where to look', async () => {
  const { request_id: id } = await chat('Hello')
  const { stdout, code } = await penny.run(['status'])
  assert.equal(code, 0)
  assert.match(stdout, /^Service +http\S+: ready\nBalance +[\d.]+ USDC.*\nKey .*\nToday +\d+ requests/)
  assert.match((await penny.run(['open', id])).stdout, new RegExp(`^http\\S+/requests/${id}\n$`))
  assert.match((await penny.run(['open', 'nowhere'])).stderr, /It has: requests, usage/)
  assert.match((await penny.run(['requests', 'list', '--json'])).stdout, new RegExp(id))
})
