import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { ModelFailure } from '../client.ts'
import { chunkWriter, parseChatRequest } from './chat-completions.ts'
import { compose, type Ending } from './compose.ts'
import { type Delivery, deliver, type Pace } from './delivery.ts'
import { responseSteps, type ServerEvent } from './events.ts'
import { PromptCache, promptTokens } from './prompt.ts'
import { type ModelRequest, parseCountRequest, parseCreateRequest, RequestError } from './request.ts'

export type ModelServerOptions = {
  host: string
  /** 0 for any free port. */
  port: number
  /** 0 for as fast as the client reads. */
  tokensPerSecond: number
  /** Defaults to 150 ms with a pace, otherwise 0. */
  timeToFirstTokenMs?: number
  /** Refuses requests without this key. By default any key, or none, is accepted. */
  apiKey?: string
  /** Called once per answer, when no more of it will be produced. */
  onAnswered?: (answered: Answered) => void
}

/** `aborted` when the client disconnected first. The tokens are those produced, whether sent or not. */
export type Answered = {
  model: string
  promptCacheKey: string | undefined
  outputTokens: number
  ending: Ending | 'aborted'
  /** The wait before it that was asked for, by its prompt or as an injected fault. */
  delayMs: number
}

export type ModelServer = {
  /** The base URL, ending in `/v1`. */
  url: string
  port: number
  /** Fault injection. */
  readonly trouble: ModelTrouble
  /** Closes all connections, including open streams. */
  close: () => Promise<void>
}

export type ModelTrouble = {
  /** The next answer is an error. */
  failNext(): void
  /** Delays the next answer by this much. */
  slowNext(milliseconds: number): void
  /** Delays every answer by this much, until set again. */
  slow(milliseconds: number): void
  /** Fails every answer in this way, until set again. */
  fail(failure: ModelFailure | undefined): void
}

const bodyBytesMax = 32 * 1024 * 1024
const defaultFirstTokenMs = 150
const keepAliveMs = 60_000

const modelIds = ['gpt-6-astra', 'gpt-5.6-terra', 'gpt-5.6-luna', 'gpt-5.6-sol', 'gpt-5.3-codex-spark']

/** Shared by the handlers. */
type Model = {
  readonly options: ModelServerOptions
  readonly pace: Pace
  readonly promptCache: PromptCache
  failsNext: boolean
  slowNextMs: number
  slowMs: number
  failure: ModelFailure | undefined
}

/** One request, its response, and a signal that aborts when the client disconnects. */
type Exchange = { readonly request: IncomingMessage; readonly response: ServerResponse; readonly signal: AbortSignal }

/**
 * Starts the sandbox model: a stand-in for the upstream that speaks the Responses API and chat completions, without any inference.
 */
export async function startModelServer(options: ModelServerOptions): Promise<ModelServer> {
  const { tokensPerSecond } = options
  const firstTokenMs = options.timeToFirstTokenMs ?? (tokensPerSecond > 0 ? defaultFirstTokenMs : 0)
  const pace = { tokensPerSecond, firstTokenMs }
  const model: Model = {
    options,
    pace,
    promptCache: new PromptCache(),
    failsNext: false,
    slowNextMs: 0,
    slowMs: 0,
    failure: undefined,
  }
  const server = createServer((request, response) => void handle(request, response, model))
  server.keepAliveTimeout = keepAliveMs
  server.listen(options.port, options.host)
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const host = options.host.includes(':') ? `[${options.host}]` : options.host
  return {
    url: `http://${host}:${port}/v1`,
    port,
    trouble: {
      failNext: () => {
        model.failsNext = true
      },
      slowNext: (milliseconds) => {
        model.slowNextMs = milliseconds
      },
      slow: (milliseconds) => {
        model.slowMs = milliseconds
      },
      fail: (failure) => {
        model.failure = failure
      },
    },
    close: async () => {
      const closed = once(server, 'close')
      server.close()
      server.closeAllConnections()
      await closed
    },
  }
}

async function handle(request: IncomingMessage, response: ServerResponse, model: Model): Promise<void> {
  const gone = new AbortController()
  response.on('close', () => gone.abort())
  response.setHeader('x-request-id', `req_${randomUUID().replaceAll('-', '')}`)
  try {
    authenticate(request, model.options.apiKey)
    if (await failed({ request, response, signal: gone.signal }, model)) return
    await route({ request, response, signal: gone.signal }, model)
  } catch (error) {
    if (gone.signal.aborted) return
    if (response.headersSent) response.destroy()
    else
      sendError(
        response,
        error instanceof RequestError
          ? error
          : new RequestError(`The sandbox model is broken: ${error}`, {
              status: 500,
              type: 'server_error',
              code: 'server_error',
            }),
      )
  }
}

async function route(exchange: Exchange, model: Model): Promise<void> {
  const { request, response } = exchange
  const path = request.url?.split('?')[0]
  switch (`${request.method} ${path}`) {
    case 'POST /v1/responses':
      return answer(parseCreateRequest(await readBody(request)), renderEvent, exchange, model)
    case 'POST /v1/chat/completions': {
      const parsed = parseChatRequest(await readBody(request))
      return answer(parsed, chunkWriter(parsed), exchange, model)
    }
    case 'POST /v1/responses/input_tokens': {
      const input_tokens = promptTokens(parseCountRequest(await readBody(request)))
      return sendJson(response, 200, { object: 'response.input_tokens', input_tokens })
    }
    case 'GET /v1/models': {
      const data = modelIds.map((id) => ({ id, object: 'model', created: 0, owned_by: 'penny-router-sandbox' }))
      return sendJson(response, 200, { object: 'list', data })
    }
    default:
      throw new RequestError(`Invalid URL (${request.method} ${path})`, { status: 404, code: 'unknown_url' })
  }
}

/**
 * Applies the injected failure and returns true; false when the request is to be answered. The list of models still works where a
 * server runs.
 */
async function failed({ request, response, signal }: Exchange, { failure }: Model): Promise<boolean> {
  const isProbe = request.method === 'GET'
  switch (failure) {
    case undefined:
      return false
    case 'kill':
      request.socket.destroy()
      return true
    case 'hang':
      if (!signal.aborted) await once(signal, 'abort')
      return true
    case '500':
      throw scriptedError(500)
    case '429':
      if (isProbe) return false
      throw scriptedError(429)
    case 'garbage':
      if (isProbe) return false
      response.writeHead(200, { 'content-type': 'text/event-stream' }).end('data: }{\n\n')
      return true
  }
}

const renderEvent = (event: ServerEvent) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`

async function answer(
  request: ModelRequest,
  render: Delivery['render'],
  { response, signal }: Exchange,
  model: Model,
): Promise<void> {
  const composed = compose(request)
  const tokens = promptTokens(request)
  const cachedTokens = model.promptCache.cachedTokens(request, tokens)
  const delayMs = composed.script.delayMs + model.slowMs + model.slowNextMs
  const errorStatus = composed.script.errorStatus ?? (model.failsNext ? 500 : undefined)
  model.failsNext = false
  model.slowNextMs = 0
  if (delayMs > 0) await sleep(delayMs, undefined, { signal })
  if (errorStatus !== undefined) throw scriptedError(errorStatus)
  const steps = responseSteps(request, composed, { tokens, cachedTokens })
  const ending = composed.stop.how
  const delivery: Delivery = { steps, isStream: request.stream, render, pace: model.pace, ending, outputTokens: 0 }
  const { model: name, promptCacheKey } = request
  const report = (ending: Answered['ending']) =>
    model.options.onAnswered?.({ model: name, promptCacheKey, outputTokens: delivery.outputTokens, ending, delayMs })
  try {
    await deliver(delivery, response, signal)
    report(ending)
  } catch (error) {
    report('aborted')
    throw error
  }
}

function authenticate(request: IncomingMessage, apiKey: string | undefined): void {
  const { authorization } = request.headers
  if (apiKey === undefined || authorization === `Bearer ${apiKey}`) return
  if (authorization === undefined) throw new RequestError("You didn't provide an API key.", { status: 401 })
  throw new RequestError('Incorrect API key provided.', { status: 401, code: 'invalid_api_key' })
}

async function readBody(request: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = []
  let length = 0
  for await (const chunk of request) {
    length += chunk.length
    // The excess is read and dropped: to stop reading would close the connection before the response is sent.
    if (length <= bodyBytesMax) chunks.push(chunk)
  }
  if (length > bodyBytesMax) {
    throw new RequestError(`The request body may have ${bodyBytesMax} bytes; it has ${length}.`, { status: 413 })
  }
  try {
    return JSON.parse(Buffer.concat(chunks).toString())
  } catch {
    throw new RequestError('We could not parse the JSON body of your request.')
  }
}

function scriptedError(status: number): RequestError {
  const kinds: Readonly<Record<number, { type: string; code: string }>> = {
    400: { type: 'invalid_request_error', code: 'invalid_value' },
    401: { type: 'invalid_request_error', code: 'invalid_api_key' },
    403: { type: 'request_forbidden', code: 'unsupported_country_region_territory' },
    404: { type: 'invalid_request_error', code: 'model_not_found' },
    429: { type: 'requests', code: 'rate_limit_exceeded' },
  }
  const kind = kinds[status] ?? { type: 'server_error', code: 'server_error' }
  return new RequestError(`The sandbox model was asked to answer ${status}.`, { status, ...kind })
}

function sendError(response: ServerResponse, error: RequestError): void {
  const { status, message, type, param, code } = error
  if (status === 429) response.setHeader('retry-after', '1')
  sendJson(response, status, { error: { message, type, param, code } })
}

function sendJson(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' })
  response.end(JSON.stringify(body))
}
