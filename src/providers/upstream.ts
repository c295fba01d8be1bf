import { StringDecoder } from 'node:string_decoder'
import { ServiceError } from '../errors.ts'
import { Shares } from '../fairness/shares.ts'
import { type ChatEvent, isOutput } from '../inference/chat-events.ts'
import type { ModelRequest } from './model-request.ts'
import type { EventReader } from './protocol.ts'
import type { ResponseHead } from './upstream-answer.ts'
import { createConnections, isTimeout, type Repeats, type UpstreamOptions } from './upstream-connections.ts'
import {
  failureError,
  ModelOverloadedError,
  refusalError,
  refusedFault,
  UnreadAnswerError,
  UpstreamError,
  UpstreamTimeoutError,
  unreadFault,
} from './upstream-errors.ts'
import { piecesOf, readFault } from './upstream-fault.ts'

/** One server of one provider. */
export type Upstream = {
  /** Our name for the provider. */
  readonly id: string
  /**
   * Requests an answer. Rejects with a `ServiceError` when there will be none, and with the signal's reason once aborted.
   * After that the events never throw because of the upstream: a broken answer ends with a `failed` event. Each array is the result of
   * one read from the network, and nothing is read before the caller asks for it.
   */
  respond(
    request: ModelRequest,
    /** The provider's name for the model. */
    model: string,
    signal: AbortSignal,
    options: AskOptions,
  ): Promise<AsyncIterable<readonly ChatEvent[]>>
  readonly requestsUnderWay: number
  /** True at the maximum number of concurrent requests. */
  readonly isFull: boolean
  /**
   * The error of a request that would exceed the maximum number of concurrent requests, or the account's share of it. Further rounds
   * are never refused: at the maximum, they wait for a connection.
   */
  refusal(asker: Asker): ServiceError | undefined
  /** Sends a cheap request. Rejects when no server responds, when it is broken, or when it refuses the key. */
  probe(): Promise<void>
  /** Accepts no more requests. Resolves when those in flight have ended. */
  retire(): Promise<void>
  /** Aborts everything in flight. */
  close(): Promise<void>
}

/** On whose behalf the model is asked. */
export type Asker = {
  readonly account: string
  /** A later round of a request that is being answered: the limits do not cut it off. Its earlier rounds would be lost and charged. */
  readonly isFurtherRound: boolean
}

export type AskOptions = {
  readonly asker: Asker
  /** Additional headers, for tracing. */
  readonly headers?: Readonly<Record<string, string>> | undefined
  /** Which unanswered requests are retried once. Default: `unanswered`. */
  readonly repeats?: Repeats | undefined
  /** Shortens the timeout of the whole answer. */
  readonly totalMsMax?: number | undefined
  /** Words that no message may contain, besides those of the provider. */
  readonly hidden?: readonly string[] | undefined
  /** Called when the request is written to a connection. */
  readonly onSent?: (() => void) | undefined
  /** Called once when an answer that began has ended. */
  readonly onEnd?: ((end: UpstreamEnd) => void) | undefined
}

/** `left`: the reader stopped before the end. */
export type UpstreamEnd =
  | { readonly type: 'finished' }
  | { readonly type: 'left' }
  | { readonly type: 'failed'; readonly error: ServiceError }

type Body = ResponseHead['body']

const errorBytesMax = 64 * 1024
const errorMsMax = 5_000
/** A provider that sends forever without writing output has failed. Far more than the encrypted reasoning of any prompt. */
const bytesBeforeOutputMax = 16 * 1024 * 1024
const drainBytesMax = 64 * 1024
const drainMsMax = 1_000

export function createUpstream(options: UpstreamOptions): Upstream {
  const { id, protocol } = options
  const connections = createConnections(options)
  const url = new URL(options.baseUrl)
  const hiddenAlways = [url.host, url.hostname, ...piecesOf(options.apiKey ?? '')]
  const places = new Shares({
    what: 'concurrent requests to this model',
    capacity: options.connectionsMax,
    floor: options.connectionsPerAccountMin,
  })
  const isFull = () => places.used >= options.connectionsMax
  const refusal = ({ account, isFurtherRound }: Asker) => {
    if (isFurtherRound) return undefined
    return isFull() ? new ModelOverloadedError() : places.refusal(account)
  }

  return {
    id,
    get requestsUnderWay() {
      return places.used
    },
    get isFull() {
      return isFull()
    },
    refusal,
    async respond(request, model, signal, { asker, headers, repeats, totalMsMax, hidden = [], onSent, onEnd }) {
      signal.throwIfAborted()
      const refused = refusal(asker)
      if (refused !== undefined) throw refused
      places.add(asker.account, 1)
      const totalMs = Math.min(options.timeouts.totalMs, totalMsMax ?? Number.POSITIVE_INFINITY)
      const deadline = startDeadline(signal, totalMs, () => places.release(asker.account))
      try {
        const body = protocol.write(request, model, id)
        const response = await connections.send(body, { headers, repeats, onSent, onSend: deadline.follow })
        // The body's end stops the deadline, not its reader: an answer that is never read must time out too.
        response.body.onClose(deadline.stop)
        if (!isEventStream(response)) throw await refusalOf(response, options, [...hiddenAlways, ...hidden])
        const reader = protocol.createReader([...hiddenAlways, ...hidden], request.maxOutputTokens)
        return readEvents(response.body, reader, signal, onEnd)
      } catch (error) {
        deadline.stop()
        throw signal.aborted ? signal.reason : asServiceError(error)
      }
    },
    probe: connections.probe,
    retire: connections.retire,
    close: connections.close,
  }
}

type Deadline = {
  /** From here on, an abort ends this answer. */
  readonly follow: (answer: Body) => void
  readonly stop: () => void
}

/**
 * Aborts the answer when the client disconnects, or when its deadline passes. Stopping it twice is harmless.
 * Has no AbortController of its own: that cost more than selecting the provider.
 */
function startDeadline(signal: AbortSignal, totalMs: number, onStop: () => void): Deadline {
  let answer: Body | undefined
  let over: { readonly reason: unknown } | undefined
  let stopped = false
  const abort = (reason: unknown) => {
    over = { reason }
    answer?.abort(reason)
  }
  const onAbort = () => abort(signal.reason)
  const timer = setTimeout(() => {
    abort(answer?.hasUnread ? new UnreadAnswerError() : new UpstreamTimeoutError(totalMs))
  }, totalMs)
  signal.addEventListener('abort', onAbort, { once: true })
  return {
    follow(next) {
      answer = next
      if (over !== undefined) next.abort(over.reason)
    },
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

function isEventStream({ statusCode, headers }: ResponseHead): boolean {
  const type = String(headers['content-type'] ?? '')
  const encoding = headers['content-encoding'] ?? 'identity'
  return statusCode === 200 && /^text\/event-stream\b/i.test(type) && encoding === 'identity'
}

async function* readEvents(
  body: Body,
  reader: EventReader,
  signal: AbortSignal,
  onEnd: AskOptions['onEnd'],
): AsyncGenerator<readonly ChatEvent[], void, undefined> {
  const decode = createDecoder()
  let isOver = false
  let hasOutput = false
  let bytesBeforeOutput = 0
  // Before the last events are returned: the reader may not ask again.
  const ended = (events: readonly ChatEvent[]) => {
    const last = events.at(-1)
    onEnd?.(last?.type === 'failed' ? { type: 'failed', error: failureError(last) } : { type: 'finished' })
    isOver = true
    return events
  }
  try {
    for (let chunk = await body.read(); chunk !== undefined; chunk = await body.read()) {
      const events = reader.push(decode(chunk))
      if (reader.ended) return yield ended(events)
      if (!hasOutput) {
        hasOutput = events.some(isOutput)
        bytesBeforeOutput += chunk.length
        if (bytesBeforeOutput > bytesBeforeOutputMax) throw new Error('the provider sent too many bytes without output')
      }
      if (events.length > 0) yield events
    }
    yield ended(reader.end())
  } catch (error) {
    if (signal.aborted) throw signal.reason
    const isUnread = error instanceof UnreadAnswerError && !reader.isComplete
    // The client was slow: the provider's end is that of an answer whose reader left.
    if (isUnread) yield [{ type: 'failed', code: unreadFault, message: error.message }]
    else yield ended(reader.isComplete ? reader.end() : [brokenOff(error)])
  } finally {
    if (!isOver) onEnd?.({ type: 'left' })
    if (reader.ended) drain(body)
    else body.abort(new Error('the reader stopped before the end of the answer'))
  }
}

/** Decodes UTF-8 that may be cut inside a character. A chunk that ends with an ASCII character is not cut, and needs no decoder. */
function createDecoder(): (piece: Buffer) => string {
  let decoder: StringDecoder | undefined
  return (piece) => {
    if (decoder === undefined && piece[piece.length - 1]! < 0x80) return piece.toString('utf8')
    decoder ??= new StringDecoder('utf8')
    return decoder.write(piece)
  }
}

function brokenOff(error: unknown): ChatEvent {
  const timedOut = isTimeout(error) || error instanceof UpstreamTimeoutError
  return timedOut
    ? { type: 'failed', code: 'upstream_timeout', message: 'The model stopped sending its answer.' }
    : { type: 'failed', code: 'upstream_reset', message: 'The connection to the model was lost during the answer.' }
}

/** A connection can be reused only if its answer was read to the end. The end is near: nothing follows the last event. */
function drain(body: Body): void {
  if (body.closed) return
  const timer = setTimeout(
    () => body.abort(new Error('the answer did not end within the drain timeout')),
    drainMsMax,
  ).unref()
  body.onClose(() => clearTimeout(timer))
  body.discard(drainBytesMax)
}

/** The error for a response that is not an event stream. Reads only the beginning of its body. */
async function refusalOf(
  { statusCode, headers, body }: ResponseHead,
  { protocol, timeouts }: UpstreamOptions,
  hidden: readonly string[],
) {
  const error = await readErrorBody(body, Math.min(errorMsMax, timeouts.firstByteMs))
  const fault = readFault(error, hidden, refusedFault)
  return refusalError({ statusCode, headers, fault }, protocol)
}

async function readErrorBody(body: Body, msMax: number): Promise<unknown> {
  const chunks: Buffer[] = []
  let bytes = 0
  const timer = setTimeout(() => body.abort(new Error('the error body did not end in time')), msMax)
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
    clearTimeout(timer)
    body.abort(new Error('the rest of an error is not read'))
  }
}
