import assert from 'node:assert/strict'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { type TestContext, test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import { type AnswerEvents, respond } from '../../test/support/read-answer.ts'
import { modelRequest } from '../../test/support/scripted-upstream.ts'
import { ServiceError } from '../errors.ts'
import type { ChatEvent } from '../inference/chat-events.ts'
import { chatCompletions } from './chat-completions.ts'
import type { ModelRequest } from './model-request.ts'
import { responses } from './responses.ts'
import { createUpstream, type Upstream } from './upstream.ts'
import type { UpstreamOptions } from './upstream-connections.ts'
import { failureError, ModelOverloadedError, UpstreamError, UpstreamTimeoutError } from './upstream-errors.ts'

const recording = (name: string) => readFileSync(new URL(`./__fixtures__/${name}.sse`, import.meta.url))
const created = 'data: {"type":"response.created"}\n\n'
const delta = (text: string) => `data: {"type":"response.output_text.delta","output_index":0,"delta":"${text}"}\n\n`
const completed = 'data: {"type":"response.completed","response":{"usage":{"input_tokens":1,"output_tokens":1}}}\n\n'

const request: ModelRequest = {
  ...modelRequest,
  messages: [{ role: 'user', content: 'Grüße' }],
  maxOutputTokens: 16,
  promptCacheKey: 'k',
}

const never = new AbortController().signal
const options = { asker: { account: 'a', isFurtherRound: false } }

type Script = (response: ServerResponse, incoming: IncomingMessage, count: number) => unknown

type Stage = { readonly upstream: Upstream; readonly requests: IncomingMessage[]; readonly sockets: Socket[] }

/** A real server that plays a script, and an upstream that talks to it. */
async function stage(context: TestContext, script: Script, settings: Partial<UpstreamOptions> = {}): Promise<Stage> {
  const requests: IncomingMessage[] = []
  const sockets: Socket[] = []
  const server = createServer((incoming, response) => {
    requests.push(incoming)
    script(response, incoming, requests.length)
  })
  server.on('connection', (socket) => sockets.push(socket))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const upstream = createUpstream({
    id: 'here',
    protocol: responses,
    baseUrl: `http://127.0.0.1:${port}/v1/`,
    apiKey: 'sk-test-0123456789',
    timeouts: { connectMs: 5_000, firstByteMs: 60_000, idleMs: 60_000, totalMs: 60_000 },
    connectionsMax: 10,
    connectionsPerAccountMin: 10,
    ...settings,
  })
  atEnd(context, async () => {
    await upstream.close()
    server.closeAllConnections()
    server.close()
  })
  return { upstream, requests, sockets }
}

const timeouts = { connectMs: 5_000, firstByteMs: 60_000, idleMs: 60_000, totalMs: 60_000 }

function begin(response: ServerResponse): ServerResponse {
  return response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' })
}

async function readAll(answer: Promise<AnswerEvents>): Promise<ChatEvent[]> {
  const events: ChatEvent[] = []
  for await (const batch of await answer) events.push(...batch)
  return events
}

/** The last event, as `finish stop` or `failed upstream_reset`. */
async function ending(answer: Promise<AnswerEvents>): Promise<string> {
  const last = (await readAll(answer)).at(-1)
  if (last?.type === 'finish') return `finish ${last.reason}`
  return last?.type === 'failed' ? `failed ${last.code}` : `open ${last?.type}`
}

/** Asks as soon as there is room: a connection is free again a few turns after its answer was read. */
async function respondWhenFree(upstream: Upstream, signal: AbortSignal): Promise<AnswerEvents> {
  for (;;) {
    try {
      return await respond(upstream, request, signal, options)
    } catch (error) {
      if (!(error instanceof ModelOverloadedError)) throw error
      await new Promise(setImmediate)
    }
  }
}

async function rejection(answer: Promise<unknown>): Promise<ServiceError> {
  const error = await answer.then(
    () => assert.fail('there was an answer'),
    (reason: unknown) => reason,
  )
  assert.ok(error instanceof ServiceError, `rejected with ${String(error)}`)
  return error
}

test('a request is sent in its protocol’s format, and its answer is read as it arrives', async (context) => {
  let sent = ''
  const { upstream, requests } = await stage(context, async (response, incoming) => {
    for await (const chunk of incoming) sent += chunk
    begin(response).end(recording('reasoning-summary'))
  })
  const events = await readAll(respond(upstream, request, never, options))
  assert.equal(sent, responses.write(request, 'm', 'here'))
  assert.equal(requests[0]?.url, '/v1/responses')
  assert.equal(requests[0]?.method, 'POST')
  assert.equal(requests[0]?.headers.authorization, 'Bearer sk-test-0123456789')
  assert.equal(requests[0]?.headers['content-type'], 'application/json')
  const text = events.map((event) => (event.type === 'text' ? event.text : '')).join('')
  assert.equal(text, '4')
  assert.deepEqual(events[0], { type: 'accepted' })
  assert.equal(events.at(-1)?.type, 'finish')
})

// The usage comes last in chat completions: without it the answer is counted by us, and is still an answer.
test('a connection that breaks after a complete answer does no harm', async (context) => {
  const script: Script = (response) => {
    const chunk = { choices: [{ delta: { content: 'Hi' }, finish_reason: 'stop' }] }
    begin(response).write(`data: ${JSON.stringify(chunk)}\n\n`, () => response.destroy())
  }
  const { upstream } = await stage(context, script, { protocol: chatCompletions })
  assert.equal(await ending(respond(upstream, request, never, options)), 'finish stop')
})

test('characters cut by the network arrive whole', async (context) => {
  const { upstream } = await stage(context, async (response) => {
    begin(response)
    for (const byte of recording('unicode')) response.write(Buffer.from([byte]))
    response.end()
  })
  const events = await readAll(respond(upstream, request, never, options))
  const text = events.map((event) => (event.type === 'text' ? event.text : '')).join('')
  assert.equal(text, 'Grüße, 世界! 👩‍👩‍👧 😀 \u2028 "quoted"\n\\u0000')
})

test('without a key no authorization header is sent', async (context) => {
  const { upstream, requests } = await stage(context, (response) => begin(response).end(completed), {
    apiKey: undefined,
  })
  await readAll(respond(upstream, request, never, options))
  assert.equal(requests[0]?.headers.authorization, undefined)
})

test('a connection is reused, even if the reader stops before the end', async (context) => {
  const answer = created + delta('x') + completed
  const { upstream, sockets } = await stage(context, (response) => begin(response).end(answer), { connectionsMax: 1 })
  for (let round = 0; round < 5; round += 1) {
    for await (const batch of await respondWhenFree(upstream, never)) if (batch.at(-1)?.type === 'finish') break
  }
  assert.equal(sockets.length, 1)
})

test('a connection that the upstream leaves open after its last event is closed', async (context) => {
  const closed = Promise.withResolvers<void>()
  const { upstream } = await stage(context, (response) => {
    response.on('close', closed.resolve)
    begin(response).write(created + completed)
  })
  assert.equal(await ending(respond(upstream, request, never, options)), 'finish stop')
  await closed.promise
})

test('output is read only as fast as it is consumed', async (context) => {
  const offered = 64 * 1024 * 1024
  const filler = delta('x'.repeat(16_000))
  let written = 0
  const { upstream } = await stage(context, (response, _incoming, count) => {
    const fill = (): void => {
      while (written < offered) {
        written += filler.length
        if (!response.write(filler)) return
      }
      response.end(completed)
    }
    begin(response)
    if (count === 1) response.on('drain', fill)
    if (count === 1) fill()
    else response.end(completed)
  })
  const answer = await respond(upstream, request, never, options)
  // Meanwhile other answers begin and end: this one can be read at any pace.
  for (let round = 0; round < 30; round += 1) await readAll(respond(upstream, request, never, options))
  assert.ok(written < offered, 'the upstream could write everything though nobody read it')
  let characters = 0
  for await (const batch of answer) {
    for (const event of batch) if (event.type === 'text') characters += event.text.length
  }
  assert.ok(characters > offered * 0.9)
})

test('when a client disconnects, its upstream connection is closed', async (context) => {
  const closed = Promise.withResolvers<void>()
  const { upstream } = await stage(context, (response) => {
    response.on('close', closed.resolve)
    begin(response).write(created + delta('x'))
  })
  const leaving = new AbortController()
  const reading = (async () => {
    for await (const batch of await respond(upstream, request, leaving.signal, options))
      if (batch.length > 0) leaving.abort(new Error('left'))
  })()
  await assert.rejects(reading, /left/)
  await closed.promise
})

test('a client that leaves before the answer begins ends the request', async (context) => {
  const closed = Promise.withResolvers<void>()
  const leaving = new AbortController()
  const { upstream } = await stage(context, (response) => {
    response.on('close', closed.resolve)
    leaving.abort(new Error('left'))
  })
  await assert.rejects(respond(upstream, request, leaving.signal, options), /left/)
  await closed.promise
  await assert.rejects(respond(upstream, request, leaving.signal, options), /left/)
})

test('a reader that stops in the middle closes the connection', async (context) => {
  const closed = Promise.withResolvers<void>()
  const { upstream } = await stage(context, (response) => {
    response.on('close', closed.resolve)
    begin(response).write(created + delta('x'))
  })
  for await (const batch of await respond(upstream, request, never, options)) if (batch.length > 0) break
  await closed.promise
})

const faults: readonly (readonly [status: number, body: unknown, code: string, param?: string])[] = [
  [
    400,
    { error: { message: 'Unsupported value: temperature', code: 'unsupported_value', param: 'temperature' } },
    'invalid_value',
    'temperature',
  ],
  [
    400,
    { error: { message: 'No tool output found', param: 'input[3].call_id', type: 'invalid_request_error' } },
    'invalid_value',
    'messages',
  ],
  [
    400,
    { error: { message: 'Invalid schema', param: 'text.format.schema', code: 'invalid_json_schema' } },
    'invalid_value',
    'response_format',
  ],
  [
    400,
    { error: { message: 'Too long', code: 'context_length_exceeded', param: 'input' } },
    'context_length_exceeded',
    'messages',
  ],
  [400, { error: { message: 'Unknown parameter: include', code: 'unknown_parameter' } }, 'upstream_error'],
  [400, { error: 'input length exceeds the context' }, 'context_length_exceeded', 'messages'],
  [
    400,
    {
      object: 'error',
      message: "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
      type: 'BadRequestError',
      code: 400,
    },
    'context_length_exceeded',
    'messages',
  ],
  [
    400,
    { error: { message: "The model's context length is only 4096 tokens.", type: 'BadRequestError', code: 400 } },
    'context_length_exceeded',
    'messages',
  ],
  [
    400,
    { message: "The input (5000 tokens) is longer than the model's context length (4096 tokens).", code: 400 },
    'context_length_exceeded',
    'messages',
  ],
  [
    400,
    [{ error: { code: 400, message: 'The input token count (5000) exceeds the maximum', status: 'INVALID_ARGUMENT' } }],
    'context_length_exceeded',
    'messages',
  ],
  [413, { code: 'Client specified an invalid argument', error: 'The prompt is too long' }, 'invalid_value'],
  [
    400,
    { error: { code: 400, message: 'Invalid value at generation_config', status: 'INVALID_ARGUMENT' } },
    'invalid_value',
  ],
  [
    400,
    [{ error: { code: 400, message: 'The input token count exceeds the maximum' } }],
    'context_length_exceeded',
    'messages',
  ],
  [
    422,
    { message: { detail: [{ type: 'value_error', loc: ['body', 'messages'], msg: 'Too many' }] } },
    'invalid_value',
  ],
  [422, { detail: [{ type: 'string_too_long', msg: 'String should have at most 9 characters' }] }, 'invalid_value'],
  [422, { detail: 'The conversation must alternate' }, 'invalid_value'],
  [422, { detail: [{ type: 'extra_forbidden', msg: 'Extra inputs are not permitted' }] }, 'upstream_error'],
  [
    422,
    {
      type: 'invalid_request_error',
      message: { detail: [{ type: 'missing', loc: ['body', 'model'], msg: 'Field required' }] },
    },
    'upstream_error',
  ],
  [
    400,
    [{ error: { code: 400, message: 'API key not valid.', details: [{ reason: 'API_KEY_INVALID' }] } }],
    'upstream_error',
  ],
  [
    400,
    { error: { message: "The requested model 'm' does not exist.", code: 'model_not_found', param: 'model' } },
    'upstream_error',
  ],
  [400, { error: { message: 'm is unknown', type: 'invalid_request_error', param: 'model' } }, 'upstream_error'],
  [
    400,
    { error: { message: 'Model Not Exist', type: 'invalid_request_error', code: 'invalid_request_error' } },
    'upstream_error',
  ],
  [400, { error: { code: 400, message: 'vendor/m is not a valid model ID' } }, 'upstream_error'],
  [400, { message: 'Invalid model: m', type: 'invalid_model', code: '1500' }, 'upstream_error'],
  [
    400,
    { error: { message: 'Invalid text: "m is not a valid model ID"', type: 'invalid_request_error' } },
    'invalid_value',
  ],
  [
    400,
    {
      type: 'error',
      error: { type: 'invalid_request_error', message: 'Your credit balance is too low to access the Anthropic API.' },
    },
    'overloaded',
  ],
  [400, { error: { message: 'Hard limit', code: 'billing_hard_limit_reached' } }, 'overloaded'],
  [400, { error: { message: 'oops', type: 'server_error' } }, 'upstream_error'],
  [400, { error: { message: '', code: 400 } }, 'upstream_error'],
  [400, 'not json', 'upstream_error'],
  [401, { error: { message: 'Incorrect API key', code: 'invalid_api_key' } }, 'upstream_error'],
  [403, { error: { message: 'Country not supported' } }, 'upstream_error'],
  [403, { error: { code: 403, message: 'flagged', metadata: { reasons: ['violence'] } } }, 'invalid_value'],
  [403, { error: { code: 403, message: 'Key limit exceeded', metadata: { provider_name: null } } }, 'upstream_error'],
  [404, { error: { message: 'The model m does not exist', code: 'model_not_found' } }, 'upstream_error'],
  [422, { error: { message: 'Cannot process', code: 'unprocessable' } }, 'invalid_value'],
  [429, { error: { message: 'Slow down', code: 'rate_limit_exceeded' } }, 'overloaded'],
  [302, '', 'upstream_error'],
  [204, '', 'upstream_error'],
  [500, { error: { message: 'oops' } }, 'upstream_error'],
  [502, '<html>', 'upstream_error'],
  [503, '', 'upstream_error'],
  [529, {}, 'upstream_error'],
]

test('each refusal of the upstream gets its documented code', async (context) => {
  const { upstream, requests } = await stage(context, (response, _incoming, count) => {
    const [status, body] = faults[count - 1]!
    response
      .writeHead(status, { 'content-type': 'application/json' })
      .end(typeof body === 'string' ? body : JSON.stringify(body))
  })
  for (const [status, body, code, param] of faults) {
    const error = await rejection(respond(upstream, request, never, options))
    assert.equal(`${error.code} ${error.param}`, `${code} ${param}`, `${status} ${JSON.stringify(body)}`)
    if (error instanceof UpstreamError) assert.equal(error.upstreamStatus, status)
  }
  assert.equal(requests.length, faults.length, 'no status is tried again')
})

test('an overloaded upstream is waited for, never longer than a minute', async (context) => {
  const headers = [
    { 'retry-after': '7' },
    { 'retry-after': '3600' },
    { 'retry-after-ms': '1500' },
    { 'retry-after': 'soon' },
    { 'retry-after': 'Thu, 31 Dec 2099 23:59:59 GMT' },
    {},
  ]
  const { upstream } = await stage(context, (response, _incoming, count) =>
    response.writeHead(429, headers[count - 1]).end(),
  )
  const waits = []
  for (const _ of headers) waits.push((await rejection(respond(upstream, request, never, options))).retryAfterMs)
  assert.deepEqual(waits, [7_000, 60_000, 1_500, 2_000, 60_000, 2_000])
})

test('an exhausted quota of the operator is distinguished from a rate limit, and waits longer', async (context) => {
  const error = { message: 'You exceeded your current quota.', type: 'insufficient_quota', code: 'insufficient_quota' }
  const { upstream } = await stage(context, (response) =>
    response.writeHead(429, { 'retry-after': '2' }).end(JSON.stringify({ error })),
  )
  for (const refusal of [await rejection(respond(upstream, request, never, options)), failureError(error)]) {
    assert.deepEqual([refusal.code, refusal.retryAfterMs], ['overloaded', 60_000])
    assert.match(refusal.message, /quota of this service at its model provider is exhausted/)
  }
})

test('no message contains the key or the address of the upstream', async (context) => {
  const { upstream } = await stage(context, (response, incoming) => {
    const message = `Key sk-test-0123456789 at http://${incoming.headers.host}/v1/responses (${incoming.headers.host}) is wrong. ${'x'.repeat(5_000)}`
    response.writeHead(400).end(JSON.stringify({ error: { message, code: 'bad' } }))
  })
  const { message } = await rejection(respond(upstream, request, never, options))
  assert.match(message, /^The model refused the request: Key \[removed\] at \[removed\]/)
  assert.doesNotMatch(message, /sk-test|127\.0\.0\.1/)
  assert.ok(message.length < 600)
})

test('a refusal of flagged input says why, and does not name the provider or its model', async (context) => {
  const error = {
    code: 403,
    message: 'vendor/m requires moderation on Vendor. Your input was flagged for "violence, self-harm".',
    metadata: { reasons: ['violence', 'self-harm'], flagged_input: 'Hi', provider_name: 'Vendor' },
  }
  const { upstream } = await stage(context, (response) => response.writeHead(403).end(JSON.stringify({ error })))
  const { message } = await rejection(respond(upstream, request, never, options))
  assert.equal(message, 'The model refused the request: the input was flagged for violence, self-harm.')
})

test('an answer that is not a stream of events is an error of the upstream', async (context) => {
  const { upstream } = await stage(context, (response, _incoming, count) => {
    if (count === 1) response.writeHead(200, { 'content-type': 'application/json' }).end('{"output":[]}')
    else response.writeHead(200, { 'content-type': 'text/event-stream', 'content-encoding': 'gzip' }).end('x')
  })
  for (let round = 0; round < 2; round += 1)
    assert.equal((await rejection(respond(upstream, request, never, options))).code, 'upstream_error')
})

test('a provider that sends without end, but no output, has failed', async (context) => {
  const { upstream } = await stage(context, (response) => {
    const comments = ': still here\n\n'.repeat(10_000)
    const send = () => {
      while (!response.destroyed && response.write(comments));
    }
    begin(response).on('drain', send)
    send()
  })
  assert.equal(await ending(respond(upstream, request, never, options)), 'failed upstream_reset')
})

test('an endless error body is not read to its end', async (context) => {
  const closed = Promise.withResolvers<void>()
  const { upstream } = await stage(context, (response) => {
    const fill = (): void => {
      while (response.write('x'.repeat(10_000)));
    }
    response.on('close', closed.resolve).on('drain', fill).writeHead(500)
    fill()
  })
  assert.equal((await rejection(respond(upstream, request, never, options))).code, 'upstream_error')
  await closed.promise
})

test('an upstream that does not begin to answer in time is aborted', async (context) => {
  const closed = Promise.withResolvers<void>()
  const { upstream } = await stage(context, (response) => response.on('close', closed.resolve), {
    timeouts: { ...timeouts, firstByteMs: 50 },
  })
  const error = await rejection(respond(upstream, request, never, options))
  assert.ok(error instanceof UpstreamTimeoutError)
  await closed.promise
})

test('an upstream that falls silent ends the answer with a timeout', async (context) => {
  const { upstream } = await stage(context, (response) => begin(response).write(created + delta('x')), {
    timeouts: { ...timeouts, idleMs: 500 },
  })
  const events = await readAll(respond(upstream, request, never, options))
  assert.deepEqual(
    events.map((event) => event.type),
    ['accepted', 'text', 'failed'],
  )
  assert.equal(
    events.at(-1)?.type === 'failed' && failureError(events.at(-1) as { code: string; message: string }).code,
    'upstream_timeout',
  )
})

test('an answer that breaks off ends with a failure, whichever way it broke', async (context) => {
  const breaks: readonly ((response: ServerResponse) => void)[] = [
    (response) => response.end(),
    (response) => response.socket?.end(),
    (response) => response.socket?.resetAndDestroy(),
  ]
  const { upstream } = await stage(context, (response, _incoming, count) => {
    begin(response).write(created + delta('x'), () => breaks[count - 1]!(response))
  })
  const endings = []
  for (const _ of breaks) endings.push(await ending(respond(upstream, request, never, options)))
  assert.deepEqual(endings, ['failed upstream_ended', 'failed upstream_reset', 'failed upstream_reset'])
})

test('a request that may have been served is not sent twice', async (context) => {
  const { upstream, requests } = await stage(context, (response) => response.socket?.resetAndDestroy())
  assert.equal((await rejection(respond(upstream, request, never, options))).code, 'upstream_error')
  assert.equal(requests.length, 1)
})

test('a kept connection that turns out to be closed costs the customer nothing', async (context) => {
  const script: Script = (response, incoming, count) => {
    if (count === 2) incoming.socket.destroy()
    else begin(response).end(completed)
  }
  const { upstream, requests } = await stage(context, script, { connectionsMax: 1 })
  assert.equal(await ending(respondWhenFree(upstream, never)), 'finish stop')
  assert.equal(await ending(respondWhenFree(upstream, never)), 'finish stop')
  assert.equal(requests.length, 3)
})

test('an upstream that is not there is tried twice and is then an error without its address', async (context) => {
  const { upstream } = await stage(context, () => {}, { baseUrl: 'http://127.0.0.1:1/v1' })
  let attempts = 0
  const onAttempt = (): void => {
    attempts += 1
  }
  subscribe('undici:client:connectError', onAttempt)
  const error = await rejection(respond(upstream, request, never, options))
  unsubscribe('undici:client:connectError', onAttempt)
  assert.equal(error.code, 'upstream_error')
  assert.doesNotMatch(error.message, /127|ECONN/)
  assert.equal(attempts, 2)
})

test('requests beyond the connection limit are refused immediately, until a connection is free', async (context) => {
  const { upstream } = await stage(context, (response) => begin(response).write(created), { connectionsMax: 1 })
  const leaving = new AbortController()
  await respond(upstream, request, leaving.signal, options)
  await assert.rejects(respond(upstream, request, never, options), ModelOverloadedError)
  leaving.abort()
  assert.ok(await respondWhenFree(upstream, never))
})

test('a further round is not refused at the limit: it waits for a connection, at most until its deadline', async (context) => {
  const settings = { connectionsMax: 1, timeouts: { ...timeouts, totalMs: 60_000 } }
  const script: Script = (response, _incoming, count) =>
    count === 1 ? begin(response).write(created) : begin(response).end(created + completed)
  const { upstream, requests } = await stage(context, script, settings)
  const leaving = new AbortController()
  await respond(upstream, request, leaving.signal, options)
  const furtherRound = { asker: { account: 'b', isFurtherRound: true } }
  const late = respond(upstream, request, never, { ...furtherRound, totalMsMax: 50 })
  assert.ok((await rejection(late)) instanceof UpstreamTimeoutError)
  const left = new AbortController()
  const gone = respond(upstream, request, left.signal, furtherRound)
  const waiting = ending(respond(upstream, request, never, furtherRound))
  assert.equal(upstream.requestsUnderWay, 3)
  assert.ok(upstream.refusal(options.asker) instanceof ModelOverloadedError)
  left.abort(new Error('left'))
  await assert.rejects(gone, /left/)
  assert.deepEqual([upstream.requestsUnderWay, requests.length], [2, 1])
  leaving.abort()
  assert.equal(await waiting, 'finish stop')
  await readAll(respondWhenFree(upstream, never))
  assert.deepEqual([upstream.requestsUnderWay, upstream.isFull], [0, false])
  assert.equal(requests.length, 3, 'what was given up while it waited is never sent')
})

test('a failed answer becomes the error of its code', () => {
  const code = (failed: string) => failureError({ code: failed, message: 'Why.' }).code
  assert.equal(code('server_error'), 'upstream_error')
  assert.equal(code('upstream_reset'), 'upstream_error')
  assert.equal(code('rate_limit_exceeded'), 'overloaded')
  assert.equal(code('upstream_timeout'), 'upstream_timeout')
  assert.equal(code('context_length_exceeded'), 'context_length_exceeded')
  assert.equal(code('invalid_prompt'), 'invalid_value')
})
