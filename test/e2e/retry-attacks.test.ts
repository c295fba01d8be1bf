import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { isRunning, startNode } from '../faults/node-process.ts'
import { assertBooksClosed } from '../support/audit.ts'
import { callChat, framesOf, readContent } from '../support/chat-client.ts'
import {
  answers,
  completed,
  created,
  type ScriptedUpstream,
  startScriptedUpstream,
  text,
} from '../support/scripted-upstream.ts'
import { postChat, startTestService, type TestAccount, type TestService, withoutTools } from '../support/service.ts'
import { until } from '../support/until.ts'

// Attacks of finding A1: read long streams, hang up before their end, and have them refunded by a retry with a short answer.
// Prices of the default model: 1 atomic unit for a token of input, 5 for one of output. No retry comes within the grace here.

let service: TestService
let upstream: ScriptedUpstream
before(async () => {
  upstream = await startScriptedUpstream()
  const retryGrace = { beforeOutputMs: 0, afterOutputMs: 0 }
  service = await startTestService({ upstreamUrl: upstream.url, retryGrace })
})
after(async () => {
  try {
    await assertBooksClosed(service.database)
  } finally {
    await service.stop()
    await upstream.close()
  }
})

const streamed = { messages: [{ role: 'user', content: 'What is a penny?' }], stream: true, ...withoutTools }
const countedInput = 11
const longTokens = 400
const long = ' penny'.repeat(longTokens)
/** The list price of a long answer. */
const longPrice = String(countedInput + 5 * longTokens)
/** The upstream reports 10 tokens of input and 5 of output. */
const shortPrice = '35'

test('attack A: five long streams, read to their last word, are not refunded by one short retry', async () => {
  const account = await service.openAccount('25')
  for (let stream = 0; stream < 5; stream += 1) await readAndLeave(account, sdk(0))
  await readShort(account, sdk(5))
  assert.deepEqual(await chargesOf(account), [...Array(5).fill(longPrice), shortPrice])
})

test('attack B: neither are ten, with twenty free requests in between', async () => {
  const account = await service.openAccount('25')
  for (let stream = 0; stream < 5; stream += 1) await readAndLeave(account, sdk(0))
  await readShort(account, sdk(5))
  for (let free = 0; free < 20; free += 1) await leaveBeforeOutput(account)
  for (let stream = 0; stream < 5; stream += 1) await readAndLeave(account, sdk(0))
  await readShort(account, sdk(5))
  const paid = (await chargesOf(account)).filter((charged) => charged !== '0')
  const half = [...Array(5).fill(longPrice), shortPrice]
  assert.deepEqual(paid, [...half, ...half])
})

test('attack C: neither are streams with an Idempotency-Key each', async () => {
  const account = await service.openAccount('25')
  for (let key = 0; key < 5; key += 1) {
    await readAndLeave(account, { 'idempotency-key': `key ${key}` })
    await readShort(account, { 'idempotency-key': `key ${key}` })
  }
  assert.deepEqual(await chargesOf(account), Array(5).fill([longPrice, shortPrice]).flat())
})

test('best of six: six whole answers to one request cost six times the price, however they are marked', async () => {
  const account = await service.openAccount('25')
  for (let count = 0; count < 6; count += 1) await readAndLeave(account, sdk(count))
  for (let count = 0; count < 6; count += 1) await readAndLeave(account, { 'idempotency-key': 'best' })
  assert.deepEqual(await chargesOf(account), Array(12).fill(longPrice))
})

test('a delivered answer is never refunded, even if it is requested again or was deleted', async () => {
  const account = await service.openAccount('25')
  await readShort(account, sdk(0))
  await readShort(account, sdk(1))
  await fetch(`${service.origin}/api/replays`, {
    method: 'DELETE',
    headers: { authorization: `Bearer ${account.apiKey}` },
  })
  await readShort(account, sdk(2))
  assert.deepEqual(await chargesOf(account), [shortPrice, shortPrice])
})

test('a retry after kill -9 of its node gets a retryable error until the node’s lease ends, then it is served', async () => {
  const account = await service.openAccount('25')
  const dataDir = mkdtempSync(join(tmpdir(), 'penny-killed-'))
  const node = await startNode({
    dataDir,
    databaseUrl: service.databaseUrl,
    upstreamUrl: upstream.url,
    leaseMs: 2_000,
    checkpointMs: 2_000,
    drainMs: 1_000,
  })
  assert.ok(isRunning(node), 'the node started')
  try {
    const before = upstream.exchanges.length
    upstream.answer = () => {}
    const headers = { 'idempotency-key': 'killed' }
    const body = { ...streamed, stream: false }
    const there = { ...service, baseUrl: `http://127.0.0.1:${node.port}/v1` }
    postChat(there, account.apiKey, body, { headers }).catch(() => {})
    await until(() => upstream.exchanges.length > before)
    node.signal('SIGKILL')
    await node.exited
    upstream.answer = answers(created, text('Whole'), completed())
    const answer = await until(async () => {
      const retried = await postChat(service, account.apiKey, body, { headers })
      if (retried.status !== 503) return retried
      assert.equal(retried.headers.get('retry-after'), '1')
      return undefined
    })
    assert.match(await answer.text(), /Whole/)
    await until(async () => (await chargesOf(account)).length === 2)
    assert.deepEqual(await chargesOf(account), ['0', shortPrice])
  } finally {
    node.signal('SIGKILL')
    rmSync(dataDir, { recursive: true, force: true })
  }
})

function sdk(retryCount: number): Record<string, string> {
  return { 'x-stainless-retry-count': String(retryCount) }
}

/** Reads a long stream to its last word, and hangs up before its end. */
async function readAndLeave(account: TestAccount, headers: Record<string, string>): Promise<void> {
  upstream.answer = (exchange) => exchange.send(created, text(long))
  const call = callChat(service, account, streamed, { headers })
  await readContent(framesOf(await call.answer), long.length)
  call.leave()
  await untilEnded(account)
}

async function leaveBeforeOutput(account: TestAccount): Promise<void> {
  const before = upstream.exchanges.length
  upstream.answer = () => {}
  const call = callChat(service, account, streamed, { headers: sdk(0) })
  await until(() => upstream.exchanges.length > before)
  call.leave()
  await untilEnded(account)
}

async function readShort(account: TestAccount, headers: Record<string, string>): Promise<void> {
  // A text of fewer bytes than the five reported tokens would teach that the provider reasons unseen.
  upstream.answer = answers(created, text('A coin.'), completed())
  const answer = await postChat(service, account.apiKey, streamed, { headers })
  assert.match(await answer.text(), /\[DONE\]/)
}

/** Nothing is held, and no key waits for its answer. */
async function untilEnded(account: TestAccount): Promise<void> {
  await until(async () => {
    const open = await service.database.query(
      `select from holds where account_id = $1
        union all select from replays where account_id = $1 and answer is null and is_keyed`,
      [account.id],
    )
    return open.length === 0
  })
}

async function chargesOf(account: TestAccount): Promise<string[]> {
  const rows = await service.database.query<{ charged: bigint }>(
    `select charged - (select coalesce(sum(j.amount), 0) from adjustments j where j.request_id = requests.id)::bigint as charged
       from requests where account_id = $1 and status <> 'refused' order by id`,
    [account.id],
  )
  return rows.map(({ charged }) => charged.toString())
}
