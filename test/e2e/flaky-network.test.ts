import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import OpenAI from 'openai'
import { assertBooksClosed } from '../support/audit.ts'
import { exampleCount, seedOf } from '../support/examples.ts'
import { progressLines, recordProof } from '../support/proof.ts'
import { startTestService, type TestService } from '../support/service.ts'
import { until } from '../support/until.ts'

/** What may happen between a client and us, as a bad proxy or a bad line would have it. */
const mishaps = [
  'none',
  'delay',
  'refused-500',
  'refused-429',
  'cut-before',
  'cut-after-request',
  'lost-reply-500',
  'lost-reply-cut',
  'cut-midway',
] as const

type Mishap = (typeof mishaps)[number]

type FlakyProxy = {
  readonly origin: string
  /** How often each mishap happened. */
  readonly counts: Readonly<Record<string, number>>
  close(): Promise<void>
}

/** An HTTP proxy that does one of these to every request, by the given die. */
async function startFlakyProxy(target: string, die: () => Mishap): Promise<FlakyProxy> {
  const counts: Record<string, number> = {}
  const server = createServer(async (incoming, outgoing) => {
    const mishap = die()
    counts[mishap] = (counts[mishap] ?? 0) + 1
    const chunks: Buffer[] = []
    for await (const chunk of incoming) chunks.push(chunk as Buffer)
    await pass(target, incoming, Buffer.concat(chunks), outgoing, mishap).catch(() => outgoing.destroy())
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    counts,
    async close() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

async function pass(
  target: string,
  incoming: IncomingMessage,
  body: Buffer,
  outgoing: ServerResponse,
  mishap: Mishap,
): Promise<void> {
  if (mishap === 'cut-before') return void outgoing.destroy()
  if (mishap === 'refused-500') return refuse(outgoing, 500)
  if (mishap === 'refused-429') return refuse(outgoing, 429)
  if (mishap === 'delay') await sleep(30)
  const { host: _, connection: __, ...headers } = incoming.headers
  const forwarded = request(new URL(incoming.url!, target), { method: incoming.method!, headers, agent: false })
  forwarded.end(body)
  if (mishap === 'cut-after-request') {
    await sleep(5)
    forwarded.on('error', () => {})
    forwarded.destroy()
    return void outgoing.destroy()
  }
  const [answer] = (await once(forwarded, 'response')) as [IncomingMessage]
  const whole = Buffer.concat((await answer.toArray()) as Buffer[])
  if (mishap === 'lost-reply-500') return refuse(outgoing, 500)
  if (mishap === 'lost-reply-cut') return void outgoing.destroy()
  const { 'transfer-encoding': _encoding, connection: _connection, ...answered } = answer.headers
  outgoing.writeHead(answer.statusCode!, { ...answered, 'content-length': String(whole.length) })
  if (mishap !== 'cut-midway') return void outgoing.end(whole)
  outgoing.write(whole.subarray(0, Math.floor(whole.length / 2)), () => outgoing.destroy())
}

function refuse(outgoing: ServerResponse, status: number): void {
  outgoing.writeHead(status, { 'content-type': 'application/json', 'retry-after-ms': '5' })
  outgoing.end('{"error":{"message":"the proxy says no","type":"server_error","param":null,"code":null}}')
}

// FLAKY_CALLS=10000 FLAKY_SEED=7 node test/run.ts test/e2e/flaky-network.test.ts for the long form.
const calls = exampleCount('FLAKY_CALLS', { short: 50, full: 100, all: 500 })
const isLong = process.env.FLAKY_CALLS !== undefined
const seed = seedOf('FLAKY_SEED')
// The SDK waits seconds before a retry: concurrent requests keep the run short.
const atOnce = 100

let service: TestService
let node: TestService
let proxy: FlakyProxy
before(async () => {
  service = await startTestService()
  // Longer than on a real service: on a busy machine the SDKs retry late, and a stream that was cut is not refunded.
  const retryGrace = { beforeOutputMs: 30_000, afterOutputMs: 30_000 }
  node = await startTestService({ besideOf: service, retryGrace })
  proxy = await startFlakyProxy(node.origin, dieOf(seed))
})
after(async () => {
  await proxy.close()
  await service.stop()
})

test(`of ${calls} SDK calls over a network that cuts, delays and corrupts, none is charged twice (seed ${seed})`, async () => {
  const account = await service.openAccount('1000')
  const client = new OpenAI({ baseURL: `${proxy.origin}/v1`, apiKey: account.apiKey, maxRetries: 4 })
  const costs = new Map<string, number>()
  const tell = isLong ? progressLines('calls', calls) : () => {}
  let next = 0
  const worker = async () => {
    for (let call = next++; call < calls; call = next++) {
      tell(call)
      const marker = `call ${call} of seed ${seed}`
      try {
        costs.set(marker, call % 3 === 0 ? await streamed(client, marker) : await buffered(client, marker))
      } catch (error) {
        assert.ok(error instanceof OpenAI.APIError || error instanceof TypeError, String(error))
      }
    }
  }
  await Promise.all(Array.from({ length: atOnce }, worker))
  await untilNothingIsHeld()
  // A request that was cut may not have reached its hold yet. A node that stops finishes it or refuses it.
  await node.stop()
  assert.ok(costs.size > calls / 2, `only ${costs.size} of ${calls} calls were answered`)

  const rows = await service.database.query<{ body_hash: bigint; charges: bigint; charged: bigint }>(
    `select body_hash, count(*) filter (where charged > 0) as charges, sum(charged)::bigint as charged
       from requests where account_id = $1 and status <> 'refused' group by body_hash`,
    [account.id],
  )
  assert.deepEqual(
    rows.filter((row) => row.charges > 1n),
    [],
    'charged twice',
  )
  // What the customers were told they paid is in the ledger, and what the ledger took beyond it went to calls that were lost.
  const told = [...costs.values()].reduce((sum, cost) => sum + Math.round(cost * 1e6), 0)
  const taken = rows.reduce((sum, row) => sum + Number(row.charged), 0)
  assert.ok(taken >= told, `told ${told}, taken ${taken}`)
  assert.ok(rows.filter((row) => row.charges > 0n).length <= calls)
  assert.deepEqual(
    mishaps.filter((mishap) => proxy.counts[mishap] === undefined),
    [],
    'mishaps that never happened',
  )
  await assertBooksClosed(service.database)
  if (isLong)
    recordProof('flaky-network', { seed, calls, answered: costs.size, mishaps: proxy.counts, chargedTwice: 0 })
})

async function buffered(client: OpenAI, content: string): Promise<number> {
  const answer = await client.chat.completions.create({
    model: 'gpt-5.6-terra',
    max_tokens: 50,
    messages: [{ role: 'user', content }],
  })
  return (answer.usage as { cost?: number } | undefined)?.cost ?? 0
}

async function streamed(client: OpenAI, content: string): Promise<number> {
  const stream = await client.chat.completions.create({
    model: 'gpt-5.6-terra',
    max_tokens: 50,
    messages: [{ role: 'user', content }],
    stream: true,
    stream_options: { include_usage: true },
  })
  let cost = 0
  for await (const chunk of stream) cost = (chunk.usage as { cost?: number } | null | undefined)?.cost ?? cost
  return cost
}

async function untilNothingIsHeld(): Promise<void> {
  await until(async () => {
    const open = await service.database.query('select from holds')
    return open.length === 0
  })
}

/** Half of the requests pass; a small generator of our own, so that a seed repeats a run. */
function dieOf(start: number): () => Mishap {
  let state = start >>> 0 || 1
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    const roll = (state >>> 8) % (2 * mishaps.length)
    return roll < mishaps.length ? mishaps[roll]! : 'none'
  }
}
