import { StringDecoder } from 'node:string_decoder'
import { ServiceError } from '../errors.ts'
import type { ChatEvent } from './chat-events.ts'
import { createResponsesReader, type ResponsesReader } from './responses-events.ts'
import type { ResponsesRequest } from './responses-request.ts'
import { createConnections, isTimeout, type UpstreamOptions, type UpstreamResponse } from './upstream-connections.ts'
import { type Fault, readFault } from './upstream-fault.ts'

export type Upstream = {
  /**
   * Asks for an answer. Rejects with a `ServiceError` when there will be none, and with the signal's reason once aborted.
   * After that the events never throw for what the upstream does: a broken answer ends with a `failed` event. Each array
   * is what one read of the network brought, and nothing is read before it is asked for.
   */
  respond(
    request: ResponsesRequest,
    signal: AbortSignal,
    /** To be sent beside our own, for tracing. */
    headers?: Readonly<Record<string, string>>,
  ): Promise<AsyncIterable<readonly ChatEvent[]>>
  /** Ends everything under way. */
  close(): Promise<void>
}

type Body = UpstreamResponse['body']

const errorBytesMax = 64 * 1024
const drainBytesMax = 64 * 1024
const drainMsMax = 1_000
const retryAfterMsMax = 60_000
const retryAfterMsDefault = 2_000

export function createUpstream(options: UpstreamOptions): Upstream {
  const connections = createConnections(options)
  const url = new URL(options.baseUrl)
  const hidden = [url.host, url.hostname, options.apiKey ?? ''].filter((word) => word !== '')
  let openCount = 0

  return {
    async respond(request, signal, headers) {
      signal.throwIfAborted()
      if (openCount >= options.connectionsMax) throw new OverloadedError()
      openCount += 1
      const deadline = startDeadline(signal, options.timeouts.totalMs, () => {
        openCount -= 1
      })
      try {
        const response = await connections.send(JSON.stringify(request), deadline.signal, headers)
        // Told by the body, not by its reader: an answer that nobody reads must be given up too.
        response.body.onClose(deadline.stop)
        if (!isEventStream(response)) throw await refusalOf(response, hidden)
        return readEvents(response.body, createResponsesReader(hidden), signal)
      } catch (error) {
        deadline.stop()
        throw signal.aborted ? signal.reason : asServiceError(error)
      }
    },
    close: connections.close,
  }
}

type Deadline = { readonly signal: AbortSignal; readonly stop: () => void }

/** Aborts with the client, or when the time for the whole answer is up. Stopping it twice is stopping it once. */
function startDeadline(signal: AbortSignal, totalMs: number, onStop: () => void): Deadline {
  const controller = new AbortController()
  const onAbort = (): void => controller.abort(signal.reason)
  const timer = setTimeout(() => controller.abort(new UpstreamTimeoutError(totalMs)), totalMs)
  signal.addEventListener('abort', onAbort, { once: true })
  let stopped = false
  return {
    signal: controller.signal,
    stop() {
      if (stopped) return
      stopped = true
      clearTimeout(timer)
      signal.removeEventListener('abort', onAbort)
      onStop()
    },
  }
}

function asServiceError(error: unknown): ServiceError {
  if (error instanceof ServiceError) return error
  if (isTimeout(error)) return new UpstreamTimeoutError(undefined, error)
  return new UpstreamError('The model could not be reached. Try again.', { cause: error })
}

function isEventStream({ statusCode, headers }: UpstreamResponse): boolean {
  const type = String(headers['content-type'] ?? '')
  const encoding = headers['content-encoding'] ?? 'identity'
  return statusCode === 200 && /^text\/event-stream\b/i.test(type) && encoding === 'identity'
}

async function* readEvents(
  body: Body,
  reader: ResponsesReader,
  signal: AbortSignal,
): AsyncGenerator<readonly ChatEvent[], void, undefined> {
  const decoder = new StringDecoder('utf8')
  try {
    for (let chunk = await body.read(); chunk !== undefined; chunk = await body.read()) {
      const events = reader.push(decoder.write(chunk))
      if (events.length > 0) yield events
      if (reader.ended) return
    }
    yield reader.end()
  } catch (error) {
    if (signal.aborted) throw signal.reason
    yield [brokenOff(error)]
  } finally {
    if (reader.ended) drain(body)
    else body.abort(new Error('the answer was left before its end'))
  }
}

function brokenOff(error: unknown): ChatEvent {
  const timedOut = isTimeout(error) || error instanceof UpstreamTimeoutError
  return timedOut
    ? { type: 'failed', code: 'upstream_timeout', message: 'The model took too long to go on with its answer.' }
    : { type: 'failed', code: 'upstream_reset', message: 'The connection to the model broke during its answer.' }
}

/** A connection can be used again only when its answer was read to the end, which is near: nothing follows the last event. */
function drain(body: Body): void {
  if (body.closed) return
  const timer = setTimeout(() => body.abort(new Error('the answer does not come to its end')), drainMsMax).unref()
  body.onClose(() => clearTimeout(timer))
  body.discard(drainBytesMax)
}

/** The error for an answer that is not a stream of events. Of its body only the beginning is read. */
async function refusalOf(response: UpstreamResponse, hidden: readonly string[]): Promise<ServiceError> {
  const { statusCode } = response
  const fault = readFault(await readErrorBody(response.body), hidden)
  if (fault.code === quotaFault) return new QuotaExhaustedError(statusCode)
  if (statusCode === 429) return new OverloadedError(retryAfterMs(response.headers))
  if (isClientsFault(statusCode, fault)) return clientError(fault)
  return new UpstreamError('The model is not available at the moment. Try again.', { upstreamStatus: statusCode })
}

async function readErrorBody(body: Body): Promise<unknown> {
  const chunks: Buffer[] = []
  let bytes = 0
  try {
    for (let chunk = await body.read(); chunk !== undefined; chunk = await body.read()) {
      chunks.push(chunk)
      bytes += chunk.length
      if (bytes > errorBytesMax) break
    }
    return JSON.parse(Buffer.concat(chunks).toString('utf8'))
  } catch {
    return undefined
  } finally {
    body.abort(new Error('the rest of an error is not read'))
  }
}

// The shape of the request is ours, so a complaint about it is our mistake, not the customer's.
const ourFaults = new Set([
  'unknown_parameter',
  'missing_required_parameter',
  'invalid_type',
  'invalid_json',
  'server_error',
])

function isClientsFault(statusCode: number, fault: Fault): boolean {
  const refused = statusCode === 400 || statusCode === 413 || statusCode === 422
  return refused && fault.message !== '' && !ourFaults.has(fault.code)
}

function clientError(fault: Pick<Fault, 'code' | 'message'> & { readonly param?: string | undefined }): ServiceError {
  if (fault.code === 'context_length_exceeded') return new ContextLengthExceededError(fault.message)
  return new RefusedByModelError(fault.message, chatParam(fault.param))
}

// What the upstream calls a parameter, and what the customer called it. Positions inside differ, so they are left out.
const chatNames: readonly (readonly [upstream: string, chat: string])[] = [
  ['input', 'messages'],
  ['instructions', 'messages'],
  ['text', 'response_format'],
  ['reasoning', 'reasoning_effort'],
  ['max_output_tokens', 'max_tokens'],
  ['tools', 'tools'],
  ['tool_choice', 'tool_choice'],
  ['parallel_tool_calls', 'parallel_tool_calls'],
  ['temperature', 'temperature'],
  ['prompt_cache_key', 'prompt_cache_key'],
  ['model', 'model'],
]

function chatParam(param: string | undefined): string | undefined {
  const name = param?.split(/[.[]/, 1)[0]
  return chatNames.find(([upstream]) => upstream === name)?.[1]
}

function retryAfterMs(headers: UpstreamResponse['headers']): number {
  const milliseconds = Number(headers['retry-after-ms'] ?? Number.NaN)
  const seconds = Number(headers['retry-after'] ?? Number.NaN)
  const asked = Number.isFinite(milliseconds) ? milliseconds : seconds * 1000
  if (!Number.isFinite(asked) || asked < 0) return retryAfterMsDefault
  return Math.min(Math.ceil(asked), retryAfterMsMax)
}

// Codes of a failed answer that are about what the customer sent.
const promptFaults = new Set([
  'context_length_exceeded',
  'invalid_prompt',
  'content_policy_violation',
  'bio_policy',
  'misalignment_policy_violation',
])
const overloadFaults = new Set(['rate_limit_exceeded', 'server_is_overloaded', 'slow_down', 'overloaded'])

// The operator's account at the provider is empty. It comes with status 429, but a retry in two seconds does not help.
const quotaFault = 'insufficient_quota'
const quotaRetryMs = 60_000

/** The error to answer with when an answer failed before anything of it was sent. */
export function failureError({ code, message }: { readonly code: string; readonly message: string }): ServiceError {
  if (promptFaults.has(code)) return clientError({ code, message })
  if (code === quotaFault) return new QuotaExhaustedError()
  if (overloadFaults.has(code)) return new OverloadedError()
  if (code === 'upstream_timeout') return new UpstreamTimeoutError()
  return new UpstreamError(`The model failed: ${message}${/[.!?]$/.test(message) ? '' : '.'} Try again.`)
}

/** The model cannot be reached, or fails, or does not let us in. */
export class UpstreamError extends ServiceError {
  readonly code = 'upstream_error'
  /** For the operator's log: 401 and 403 mean that the key is wrong. */
  readonly upstreamStatus: number | undefined
  constructor(message: string, details: { readonly upstreamStatus?: number; readonly cause?: unknown } = {}) {
    super(message, { cause: details.cause })
    this.upstreamStatus = details.upstreamStatus
  }
}

export class UpstreamTimeoutError extends ServiceError {
  readonly code = 'upstream_timeout'
  constructor(totalMs?: number, cause?: unknown) {
    const limit = totalMs === undefined ? 'in time' : `within ${totalMs / 1000} seconds`
    super(`The model did not answer ${limit}. Try again, or ask for less.`, { cause })
  }
}

export class OverloadedError extends ServiceError {
  readonly code = 'overloaded'
  constructor(retryAfterMs = 1_000) {
    super(`The model is overloaded. Try again in ${Math.ceil(retryAfterMs / 1000)} seconds.`, { retryAfterMs })
  }
}

export class QuotaExhaustedError extends ServiceError {
  readonly code = 'overloaded'
  /** For the operator's log. */
  readonly upstreamStatus: number | undefined
  constructor(upstreamStatus?: number) {
    super(
      'The quota of this service at its model provider is used up. Nothing was charged. Try again in a minute; it lasts until the operator has raised the quota.',
      { retryAfterMs: quotaRetryMs },
    )
    this.upstreamStatus = upstreamStatus
  }
}

export class ContextLengthExceededError extends ServiceError {
  readonly code = 'context_length_exceeded'
  constructor(message: string) {
    super(`The conversation does not fit the model: ${message}`, { param: 'messages' })
  }
}

/** The model takes requests, but not this one. */
export class RefusedByModelError extends ServiceError {
  readonly code = 'invalid_value'
  constructor(message: string, param: string | undefined) {
    super(`The model refused the request: ${message}`, { param })
  }
}
