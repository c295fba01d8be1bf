import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { callChat, endedRows } from '../support/chat-client.ts'
import { parseMetrics } from '../support/prometheus.ts'
import {
  answers,
  completed,
  created,
  startScriptedUpstream,
  text,
  type UpstreamExchange,
} from '../support/scripted-upstream.ts'
import { postChat, startTestService, withoutTools } from '../support/service.ts'
import { until } from '../support/until.ts'

// Three processes serve requests on one port. The first is the process of this test.

const requests = 60
const processes = ['1', '2', '3']
const folder = mkdtempSync(join(tmpdir(), 'penny-models-'))
const modelsFile = join(folder, 'models.json')
writeModels('1.00')
const upstream = await startScriptedUpstream()
const service = await startTestService({
  upstreamUrl: upstream.url,
  environment: { WEB_PROCESSES: '3', DRAIN_MS: '60000', MODELS_FILE: modelsFile },
})
const account = await service.openAccount('10')
let stopped: Promise<void> | undefined
const stop = () => (stopped ??= service.stop())
after(async () => {
  await stop()
  await upstream.close()
  rmSync(folder, { recursive: true })
})

test('connections are spread over all processes, and any of them reports the metrics of all', async () => {
  upstream.answer = answers(created, text('Hi'), completed())
  const asked = await Promise.all(Array.from({ length: requests }, () => ask(false)))
  assert.deepEqual(new Set(asked.map(({ status }) => status)), new Set([200]))
  for (let read = 0; read < processes.length * 2; read += 1) {
    const counts = await countByProcess()
    assert.deepEqual([...counts.keys()].sort(), processes)
    assert.equal(
      counts.values().reduce((sum, count) => sum + count),
      requests,
    )
  }
})

test('all processes share the allowance for cancels before output', async () => {
  const poor = await service.openAccount('10')
  // 7,506 at list price; 10,000 an hour are free.
  const body = { messages: [{ role: 'user', content: ' penny'.repeat(7_500) }], max_tokens: 100 }
  for (let cancel = 0; cancel < 12; cancel += 1) {
    const asked = Promise.withResolvers<UpstreamExchange>()
    upstream.answer = asked.resolve
    const call = callChat(service, poor, { ...body, ...withoutTools })
    const { hungUp } = await asked.promise
    call.leave()
    await hungUp
  }
  const rows = await endedRows(service, poor, 12)
  assert.equal(rows.filter(({ charged_atomic }) => charged_atomic === '0').length, 1)
})

test('a killed process is started again, and the requests that it served are ended', async () => {
  const { streams, finish } = await openStreams()
  const [killed] = webPids()
  process.kill(killed!, 'SIGKILL')
  finish()
  const texts = await Promise.allSettled(streams.map((stream) => stream.text()))
  const whole = texts.filter(({ status }) => status === 'fulfilled')
  assert.ok(whole.length > 0 && whole.length < requests, `${whole.length} of ${requests} streams were whole`)
  await until(async () => {
    const [held] = await service.database.query('select from accounts where held > 0')
    return held === undefined
  })
  upstream.answer = answers(created, text('Hi'), completed())
  const counts = await until(async () => {
    assert.equal((await ask(false)).status, 200)
    const found = await countByProcess()
    return found.size === processes.length && found
  })
  assert.deepEqual([...counts.keys()].sort(), processes)
  assert.equal(webPids().includes(killed!), false)
})

// At other prices than the ledger knows, its first charge would freeze the ledger for everybody.
test('a process that starts again after MODELS_FILE was edited sells at the prices of the others', async () => {
  writeModels('2.00')
  const [killed] = webPids()
  process.kill(killed!, 'SIGKILL')
  upstream.answer = answers(created, text('Hi'), completed())
  // Connections that the killed process had not accepted yet are reset.
  await until(async () => {
    await ask(false).catch(() => undefined)
    const counts = webPids().includes(killed!) ? undefined : await countByProcess().catch(() => undefined)
    return counts?.size === processes.length
  })
  const rows = await service.database.query(
    `select distinct r.price_version = p.version as is_known from requests r
       left join prices p on p.version = r.price_version and p.model = r.model`,
  )
  assert.deepEqual(rows, [{ is_known: true }])
})

test('a stop lets the streams of all processes finish', async () => {
  const { streams, finish } = await openStreams()
  const stopping = stop()
  await until(async () => (await fetch(`${service.origin}/readyz`).catch(() => undefined)) === undefined)
  finish()
  for (const stream of streams) assert.match(await stream.text(), /data: \[DONE\]/)
  await stopping
  assert.deepEqual(webPids(), [])
})

function ask(stream: boolean): Promise<Response> {
  const body = { messages: [{ role: 'user', content: 'Hi' }], max_tokens: 50, stream, ...withoutTools }
  // A new connection each: the kernel chooses the process when a connection is opened.
  return postChat(service, account.apiKey, body, { headers: { connection: 'close' } })
}

/** Streams that have begun, over all processes, and wait for `finish`. */
async function openStreams() {
  const { promise, resolve: finish } = Promise.withResolvers<void>()
  upstream.answer = async ({ send, end }) => {
    send(created, text('Hi'))
    await promise
    send(completed())
    end()
  }
  return { streams: await Promise.all(Array.from({ length: requests }, () => ask(true))), finish }
}

function writeModels(inputPerMillion: string): void {
  const model = { id: 'penny', input_per_million: inputPerMillion, output_per_million: '5.00', max_output_tokens: 1000 }
  writeFileSync(modelsFile, JSON.stringify([model]))
}

/** The processes beside this one. */
function webPids(): readonly number[] {
  const children = readFileSync(`/proc/${process.pid}/task/${process.pid}/children`, 'utf8').trim()
  return children.split(/\s+/).flatMap((pid) => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').startsWith('penny-web') ? [Number(pid)] : []
    } catch {
      return []
    }
  })
}

/** Answers by the number of the process that gave them. */
async function countByProcess(): Promise<Map<string, number>> {
  const page = await (await fetch(`${service.origin}/metrics`, { headers: { connection: 'close' } })).text()
  const { samples } = parseMetrics(page).get('penny_requests_total')!
  const counts = new Map<string, number>()
  for (const { labels, value } of samples) {
    if (labels.status === 'succeeded') counts.set(labels.process!, (counts.get(labels.process!) ?? 0) + value)
  }
  return counts
}
