import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import OpenAI from 'openai'
import type { coreOfClients } from '../clients/core.ts'
import { type Exchange, startTap, type Tap } from '../clients/tap.ts'
import { problemsOf } from '../clients/wire.ts'
import { assertBooksClosed } from '../support/audit.ts'
import { endedRows } from '../support/chat-client.ts'
import { type RequestBody, startTestService, type TestAccount, type TestService } from '../support/service.ts'
import { until, untilFits } from '../support/until.ts'
import { drill, isWhole } from './drill.ts'
import { freePort } from './free-port.ts'
import { tinyModel } from './tiny-model.ts'
import { folderOf, type UnpackedEngine, unpack } from './unpacked-engine.ts'

// A real inference engine as the provider: its own tokenizer, its own events, its own errors. The clients of `npm run test:clients` ask.

const llama: UnpackedEngine = {
  program: 'llama-server',
  packages: [
    'llama.cpp-tools',
    ...['libllama0', 'libggml0', 'libc6', 'libssl3t64', 'libstdc++6', 'libgcc-s1', 'libgomp1', 'zlib1g', 'libzstd1'],
  ],
  libraryFolders: ['llama'],
  // Every processor of this kind can run it.
  plugin: ['GGML_BACKEND_PATH', `ggml/backends0/libggml-cpu-${process.arch === 'x64' ? 'x64' : 'armv8.0_1'}.so`],
}
const atomicPerInput = 20
const atomicPerOutput = 100
const contextTokens = 2_048
const protocols = ['responses', 'chat-completions'] as const

drill({
  engine: {
    name: 'llama-server',
    program: llama.program,
    folders: [folderOf(llama)],
    package: 'llama.cpp-tools',
    version: '--version',
  },
  tried:
    'a real engine serves by both protocols and is charged by its own usage; answers end, are cut, cancelled and refused; it is killed',
  problem: isWhole ? unpack(llama) : undefined,
  async run({ path }, step) {
    const folder = mkdtempSync(join(tmpdir(), 'penny-llama-'))
    const model = join(folder, 'tiny.gguf')
    writeFileSync(model, tinyModel(readFileSync(new URL('../../docs/glossary.md', import.meta.url), 'utf8')))
    const port = await freePort()
    let engine = await startEngine(path, model, port)
    const tap = await startTap(`http://127.0.0.1:${port}`)
    const file = join(folder, 'providers.json')
    writeFileSync(file, JSON.stringify(providersAt(tap.baseUrl)))
    const environment = { UPSTREAM_BASE_URL: '', PROVIDERS_FILE: file }
    const service = await startTestService({ environment, retryGrace: { beforeOutputMs: 50, afterOutputMs: 50 } })
    // Not before there is an engine: the clients take a second to load.
    const clients = await import('../clients/core.ts')
    try {
      const seen: Seen[] = []
      for (const protocol of protocols) {
        step(`answers over ${protocol}`)
        seen.push(await askAll(service, tap, protocol))
        for (const [name, ask] of Object.entries(clients.coreOfClients)) {
          step(`${name} over ${protocol}`)
          seen.push(await askBy(ask, service, tap, protocol))
        }
      }
      step('the engine is killed while it answers')
      for (const protocol of protocols) {
        await killWhileItAnswers(service, engine, protocol)
        engine = await startEngine(path, model, port)
        const { completions } = clientOf(service, await service.openAccount('1')).chat
        // The provider is asked again when its breaker lets a request through.
        await until(() => completions.create(questionOf(protocol, 20)).catch(() => undefined))
      }
      await assertBooksClosed(service.database)
      const sum = (member: keyof Seen) => seen.reduce((total, each) => total + each[member], 0)
      return `${sum('answers')} answers, ${sum('inputTokens')} input and ${sum('outputTokens')} output tokens counted by the engine and charged, books closed`
    } finally {
      await service.stop()
      await tap.stop()
      await stopEngine(engine)
      rmSync(folder, { recursive: true, force: true })
    }
  },
})

function providersAt(base_url: string): object {
  return {
    providers: Object.fromEntries(protocols.map((protocol) => [protocol, { protocol, base_url, api_key: null }])),
    models: protocols.map((protocol) => ({
      id: `tiny-${protocol}`,
      input_per_million: String(atomicPerInput),
      output_per_million: String(atomicPerOutput),
      max_output_tokens: 1_500,
      upstreams: [{ provider: protocol, model: 'tiny', priority: 0 }],
    })),
  }
}

async function startEngine(path: string, model: string, port: number): Promise<ChildProcess> {
  const limits = ['-c', String(2 * contextTokens), '-np', '2', '-t', '1', '--no-webui']
  const engine = spawn(path, ['-m', model, '--host', '127.0.0.1', '--port', String(port), ...limits], {
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  let said = ''
  engine.stderr!.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(-2_000)
  })
  const failed = once(engine, 'exit').then(() => Promise.reject(new Error(`llama-server ended: ${said}`)))
  const ready = untilFits(
    () => fetch(`http://127.0.0.1:${port}/health`),
    ({ status }) => status === 200,
  )
  await Promise.race([ready, failed])
  failed.catch(() => {})
  return engine
}

async function stopEngine(engine: ChildProcess): Promise<void> {
  if (engine.exitCode !== null || engine.signalCode !== null) return
  const ended = once(engine, 'exit')
  engine.kill('SIGKILL')
  await ended
}

type Protocol = (typeof protocols)[number]
type Seen = { readonly answers: number; readonly inputTokens: number; readonly outputTokens: number }

function clientOf(service: TestService, { apiKey }: TestAccount): OpenAI {
  return new OpenAI({ baseURL: service.baseUrl, apiKey, maxRetries: 0 })
}

function questionOf(protocol: Protocol, max_tokens: number) {
  const messages = [
    { role: 'system' as const, content: 'A ledger has holds, charges and payments.' },
    { role: 'user' as const, content: 'What is a hold? Grüße, 漢字, 🙂' },
  ]
  return { model: `tiny-${protocol}`, messages, max_tokens, web_search: false, web_fetch: false }
}

async function askAll(service: TestService, tap: Tap, protocol: Protocol): Promise<Seen> {
  const account = await service.openAccount('1000')
  const { completions } = clientOf(service, account).chat
  tap.forget()
  const lengths = [16, 40, 300]
  for (const length of lengths) {
    const { choices, usage } = await completions.create(questionOf(protocol, length))
    assert.ok(usage!.completion_tokens <= length)
    assert.equal(choices[0]!.finish_reason, usage!.completion_tokens === length ? 'length' : 'stop')
  }
  let streamed: OpenAI.CompletionUsage | null | undefined
  const stream = await completions.create({
    ...questionOf(protocol, 100),
    stream: true,
    stream_options: { include_usage: true },
  })
  for await (const chunk of stream) streamed = chunk.usage ?? streamed
  const rows = await endedRows(service, account, lengths.length + 1)
  const engines = tap.exchanges.map(usageOf)
  assert.deepEqual(
    rows.map(({ usage }) => [usage!.prompt_tokens, usage!.completion_tokens]),
    engines,
  )
  assert.deepEqual([streamed!.prompt_tokens, streamed!.completion_tokens], engines.at(-1))
  for (const row of rows) assert.equal(Number(row.charged_atomic), costOf(row))

  const long = { ...questionOf(protocol, 100), messages: [{ role: 'user' as const, content: ' penny'.repeat(3_000) }] }
  await assert.rejects(completions.create(long), ({ status, code }) => {
    assert.deepEqual([status, code], [400, 'context_length_exceeded'])
    return true
  })
  const left = await completions.create({ ...questionOf(protocol, 1_500), stream: true })
  for await (const { choices } of left) if (choices[0]?.delta.content) break
  const [refused, cancelled] = (await endedRows(service, account, lengths.length + 3)).slice(-2)
  assert.deepEqual([refused!.status, refused!.charged_atomic], ['failed', '0'])
  assert.equal(cancelled!.status, 'cancelled')
  assert.ok(Number(cancelled!.charged_atomic) > 0)
  return seenOf(engines)
}

type Ask = (typeof coreOfClients)[string]

/** What each client reads is what the engine reported and what is charged, and every answer keeps the rules of the client suites. */
async function askBy(ask: Ask, service: TestService, tap: Tap, protocol: Protocol): Promise<Seen> {
  tap.forget()
  const account = await service.openAccount('1000', { options: { webTools: false } })
  const front = await startTap(service.origin)
  try {
    const place = { baseURL: front.baseUrl, apiKey: account.apiKey, model: `tiny-${protocol}`, maxTokens: 40 }
    const answers = await ask(place)
    const rows = await endedRows(service, account, answers.length)
    const engines = tap.exchanges.map(usageOf)
    assert.deepEqual(front.exchanges.flatMap(problemsOf), [])
    assert.ok(answers.every(({ text }) => text !== ''))
    assert.deepEqual(
      answers.map(({ inputTokens, outputTokens }) => [inputTokens, outputTokens]),
      engines,
    )
    for (const [index, row] of rows.entries()) {
      assert.deepEqual([row.usage!.prompt_tokens, row.usage!.completion_tokens], engines[index])
      assert.equal(Number(row.charged_atomic), costOf(row))
    }
    return seenOf(engines)
  } finally {
    await front.stop()
  }
}

function seenOf(engines: readonly (readonly [input: number, output: number])[]): Seen {
  return {
    answers: engines.length,
    inputTokens: engines.reduce((sum, [input]) => sum + input, 0),
    outputTokens: engines.reduce((sum, [, output]) => sum + output, 0),
  }
}

function costOf({ usage }: RequestBody): number {
  return atomicPerInput * usage!.prompt_tokens + atomicPerOutput * usage!.completion_tokens
}

/** What the engine reported, by either protocol. */
function usageOf({ text }: Exchange): readonly [input: number, output: number] {
  const number = (name: string) => Number([...text.matchAll(new RegExp(`"${name}":\\s*(\\d+)`, 'g'))].at(-1)![1])
  return text.includes('"input_tokens"')
    ? [number('input_tokens'), number('output_tokens')]
    : [number('prompt_tokens'), number('completion_tokens')]
}

/** What was read is charged, and no more. */
async function killWhileItAnswers(service: TestService, engine: ChildProcess, protocol: Protocol): Promise<void> {
  const account = await service.openAccount('1000')
  const stream = await clientOf(service, account).chat.completions.create({
    ...questionOf(protocol, 1_500),
    stream: true,
  })
  let chunks = 0
  await assert.rejects(async () => {
    for await (const { choices } of stream) {
      if (choices[0]?.delta.content) chunks += 1
      if (chunks === 3) await stopEngine(engine)
    }
  })
  const [row] = await endedRows(service, account, 1)
  assert.equal(row!.status, 'failed')
  assert.ok(Number(row!.charged_atomic) > 0 && Number(row!.charged_atomic) <= Number(row!.quote_atomic))
  assert.equal(Number(row!.charged_atomic), costOf(row!))
}
