import assert from 'node:assert/strict'
import type { ChildProcess } from 'node:child_process'
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { promisify } from 'node:util'
import { createWallet, DashboardClient, signedMessage } from '../support/dashboard-client.ts'
import { preparePenny } from '../support/penny-command.ts'
import { until } from '../support/until.ts'

// Every command as an operator runs it: beside a running service, given only its data folder.

const penny = preparePenny()
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
  assert.match(cut.stdout, /20 written, cut there: --max-tokens N allows more · req_/)
})

test('penny quote says the most that a question can cost, and penny chat then costs no more', async () => {
  const quote = await penny.json<{ quote_atomic: string; admitted: boolean }>(['quote', 'What is a penny?', '--no-web'])
  assert.equal(quote.admitted, true)
  const { usage } = await chat('What is a penny?')
  assert.ok(usage.cost * 1e6 <= Number(quote.quote_atomic))
  const poor = await penny.json<{ api_key: string }>(['keys', 'create', '--name', 'poor', '--limit', '0.000001'])
  const dear = await penny.run(['quote', 'Much?', '--key', poor.api_key])
  assert.equal(dear.code, 1)
  assert.match(dear.stdout, /It would be refused now/, dear.stderr)
})

test('a refusal is told in the service’s own words, and a service that is away in one line', async () => {
  const refused = await penny.run(['chat', 'Hi', '--model', 'no-such-model'])
  assert.deepEqual([refused.code, /^penny: 404: .*no-such-model/.test(refused.stderr)], [1, true])
  const away = await penny.run(['chat', 'Hi', '--url', 'http://127.0.0.1:9/v1'])
  assert.deepEqual(
    [away.code, /^penny: No service answers at http:\/\/127\.0\.0\.1:9\/v1/.test(away.stderr)],
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
    assert.match(stderr, /^penny: penny \w+ does not know what to do with "other"\.\n\n {2}penny /)
  }
  assert.equal((await penny.json<Balance>(['balance'])).available_atomic, before)
})

test('a wrong amount, order or address is told in one line that says what is right', async () => {
  for (const [words, code, told] of [
    [['faucet', '--amount', 'much'], 2, /^penny: --amount must be an amount of USDC such as 2\.50, got "much"\.\n$/],
    [['faucet', '--amount', '0'], 1, /it gives 0\.000001 to 1000000 USDC at once, not 0\.\n$/],
    [['withdraw', '--amount', 'much'], 2, /^penny: --amount must be an amount of USDC such as 2\.50, got "much"\.\n$/],
    [['payout', '--amount', 'much'], 2, /^penny: --amount must be an amount of USDC such as 2\.50, got "much"\.\n$/],
    [['withdraw', '--amount', '1'], 1, /^penny: No address is registered .* with --to 0x….\n$/],
    [['withdraw', '--amount', '1', '--to', '0x12'], 1, /^penny: 0x12 cannot receive withdrawals: [^\n]*\n$/],
    [['withdraw', '--amount', '1', '--id', 'x'], 2, /^penny: --id must be a UUID[^\n]*\n$/],
  ] as const) {
    const refused = await penny.run([...words])
    assert.equal(refused.code, code, refused.stderr)
    assert.match(refused.stderr, told)
  }
})

// In the wrong folder an audit once made new books, found them right and said so.
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
    /^penny: There is no account "nobody": penny accounts lists them\.\n$/,
  )
})

test('penny accounts tells which accounts are closed, and such a one is given no key', async () => {
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
  const byModel = await penny.json<{ model: string; key: string; requests: number }[]>(['usage', '--by', 'model,key'])
  assert.ok(byModel.some(({ model, key }) => model === 'gpt-5.6-terra' && key.startsWith('Sandbox demo key penny_…')))
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

test('a charge is given back only out of settled revenue, with a reason, and the books stay right', async () => {
  const { account_id: id, charged_atomic: charged } = await penny.json<Balance>(['balance'])
  const beyond = await penny.run(['accounts', 'adjust', id, '--amount', '20', '--reason', 'too much'])
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
  ])
  assert.equal(again.decision, 'stored')
  const after = await penny.json<Balance>(['balance'])
  assert.equal(Number(after.available_atomic) - Number(before.available_atomic), 100)
  const [row] = await penny.json<{ amount: string; reason: string; made_by: string }[]>(['accounts', 'adjustments', id])
  assert.deepEqual([row!.amount, row!.reason, row!.made_by.includes('@')], ['0.0001', 'the model was down', true])
  assert.equal((await penny.run(['accounts', 'adjust', id, '--amount=-0.0001', '--reason', 'by mistake'])).code, 0)
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

test('the completions know every command, and bash completes verbs and options with them', async () => {
  const { stdout: script } = await penny.run(['completion', 'bash'])
  const file = join(penny.folder, 'completion.bash')
  const complete = async (...words: string[]) => {
    const line = words.map((word) => `"${word}"`).join(' ')
    writeFileSync(
      file,
      `${script}\nCOMP_WORDS=(penny ${line}); COMP_CWORD=${words.length}; _penny; echo "\${COMPREPLY[@]}"\n`,
    )
    return (await promisify(execFile)('bash', [file])).stdout.trim()
  }
  assert.equal(await complete('acc'), 'accounts')
  assert.equal(await complete('accounts', 'ad'), 'adjust adjustments')
  assert.equal(await complete('logs', 'tail', '--st'), '--status')
  const help = (await penny.run(['--help'])).stdout
  const names = [...help.matchAll(/^ {2}penny (\S+)/gm)].map(([, name]) => name!)
  for (const shell of ['bash', 'zsh', 'fish']) {
    const { stdout } = await penny.run(['completion', shell])
    for (const name of names) assert.ok(stdout.includes(name), `${shell}: ${name}`)
  }
})
