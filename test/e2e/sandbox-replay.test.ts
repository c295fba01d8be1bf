import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, before, test } from 'node:test'
import { preparePenny } from '../support/penny-command.ts'

// `penny sandbox replay` beside a running sandbox, as a developer uses it to look at charts.

const penny = preparePenny({ keepsProcess: true })
before(() => penny.start())
after(() => penny.remove())

type Counts = { complete: boolean; requests: number; refused: number; cancelled: number; failed: number }
type Day = { day: string; requests: number; refused: number; searches: number; charged: string }
type Row = { status: string; created_at: string; ended_at: string; error: { code: string } | null }

const replay = (...options: string[]) => penny.json<Counts>(['sandbox', 'replay', ...options])
const dayMs = 86_400_000

async function assertCleanBooks(): Promise<void> {
  const audit = await penny.run(['audit'])
  assert.equal(audit.code, 0, audit.stdout)
}

async function rows(query: string): Promise<readonly Row[]> {
  const { base_url: baseUrl, api_key: key } = penny.sandbox()
  const headers = { authorization: `Bearer ${key}` }
  const response = await fetch(`${baseUrl.replace('/v1', '')}/api/requests?${query}`, { headers })
  return ((await response.json()) as { data: readonly Row[] }).data
}

test('a replay fills the past days through the ledger, and the ledger balances', async () => {
  const counts = await replay('--days', '10', '--per-day', '40')
  assert.equal(counts.complete, true)
  assert.ok(counts.refused > 0 && counts.cancelled > 0 && counts.failed > 0, JSON.stringify(counts))
  await assertCleanBooks()
  const days = await penny.json<readonly Day[]>(['usage', '--days', '12'])
  assert.ok(days.filter(({ requests }) => requests > 5).length >= 9, JSON.stringify(days))
  assert.ok(days.reduce((sum, { searches }) => sum + Number(searches), 0) > 0)
  const limited = await rows('status=refused&limit=200')
  assert.ok(limited.some(({ error }) => error?.code === 'key_limit_exceeded'))
  const old = await rows(`to=${new Date(Date.now() - 5 * dayMs).toISOString()}&limit=200`)
  assert.ok(old.length > 50)
  for (const { created_at: from, ended_at: to } of old) assert.ok(Date.parse(to) - Date.parse(from) < 60_000)
  // The money comes before the first charge: otherwise a statement would open with less than nothing.
  const { deposits } = await penny.json<{ deposits: readonly { seen_at: string }[] }>(['deposit'])
  // The first day of the replay is nine days ago; after midnight it is hardly over.
  const first = await rows(`to=${new Date(Date.now() - 8 * dayMs).toISOString()}&limit=200`)
  assert.ok(
    first.length > 0 && deposits.filter(({ seen_at: at }) => at <= first.at(-1)!.created_at).length >= 2,
    JSON.stringify(deposits),
  )
})

test('a second replay adds to the first, with keys of its own; the service’s own clock is untouched', async () => {
  const before = await penny.json<readonly Day[]>(['usage', '--days', '12'])
  const { requests } = await replay('--days', '3', '--per-day', '20', '--seed', '2')
  const sum = (days: readonly Day[]) =>
    days.reduce((total, day) => total + Number(day.requests) + Number(day.refused), 0)
  assert.equal(sum(await penny.json<readonly Day[]>(['usage', '--days', '12'])), sum(before) + requests)
  const names = (await penny.json<readonly { name: string }[]>(['keys', 'list'])).map(({ name }) => name)
  assert.ok(
    ['Web app', 'Web app 2', 'Nightly batch 2'].every((name) => names.includes(name)),
    names.join(),
  )
  const { request_id: id } = await penny.json<{ request_id: string }>(['chat', 'Hi', '--no-web'])
  const { created_at: createdAt } = await penny.json<{ created_at: string }>(['requests', 'get', id])
  assert.ok(Math.abs(Date.parse(createdAt) - Date.now()) < 60_000)
  await assertCleanBooks()
})

test('Ctrl-C during a replay leaves a balanced ledger and no holds', async () => {
  const child = penny.spawn(['sandbox', 'replay', '--days', '90', '--per-day', '200'])
  const exited = once(child, 'exit')
  let said = ''
  child.stdout!.on('data', (text) => {
    said += text
  })
  // Its first words come after 250 requests.
  await once(child.stderr!, 'data')
  child.kill('SIGINT')
  assert.deepEqual((await exited)[0], 130)
  assert.match(said, /^Interrupted\. Added \d+ requests since /)
  assert.equal((await penny.json<{ held_atomic: string }>(['balance'])).held_atomic, '0')
  await assertCleanBooks()
})

test('a replay is refused in production, with a chain or gateway of the operator’s own, and without a running sandbox', async () => {
  const only =
    /^penny: penny sandbox works only in the sandbox, not in production and not with an external chain or gateway\.\n$/
  const attempts: readonly [Record<string, string>, RegExp][] = [
    [{ NODE_ENV: 'production' }, only],
    [
      { GATEWAY_URL: 'http://127.0.0.1:9' },
      /^penny: CHAIN_RPC_URL, USDC_ADDRESS, GATEWAY_WALLET_ADDRESS must be set too\. /,
    ],
    [
      {
        CHAIN_RPC_URL: 'http://127.0.0.1:9',
        GATEWAY_URL: 'http://127.0.0.1:9',
        USDC_ADDRESS: `0x${'1'.repeat(40)}`,
        GATEWAY_WALLET_ADDRESS: `0x${'2'.repeat(40)}`,
        MASTER_KEY: 'ab'.repeat(32),
      },
      only,
    ],
    [{ DATA_DIR: penny.folder }, /^penny: No sandbox is running on .*\. Start it with penny start\.\n$/],
  ]
  const before = await penny.json<readonly Day[]>(['usage', '--days', '90'])
  for (const [environment, reason] of attempts) {
    const { code, stderr } = await penny.run(['sandbox', 'replay'], environment)
    assert.equal(code, 1, stderr)
    assert.match(stderr, reason)
  }
  assert.deepEqual(await penny.json<readonly Day[]>(['usage', '--days', '90']), before)
})

test('wrong words and numbers are refused', async () => {
  for (const words of [
    ['sandbox'],
    ['sandbox', 'reset'],
    ['sandbox', 'replay', '--days', '0'],
    ['sandbox', 'replay', '--days', 'x'],
  ])
    assert.equal((await penny.run(words)).code, 2, words.join(' '))
})
