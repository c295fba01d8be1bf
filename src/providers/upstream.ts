import { StringDecoder } from 'node:string_decoder'
import { ServiceError } from '../errors.ts'
import { type ChatEvent, isOutput } from '../inference/chat-events.ts'
import type { ModelRequest } from './model-request.ts'
import type { EventReader } from './protocol.ts'
import type { AnswerHead } from './upstream-answer.ts'
import { createConnections, isTimeout, type Repeats, type UpstreamOptions } from './upstream-connections.ts'
import { failureError, OverloadedError, refusalError, UpstreamError, UpstreamTimeoutError } from './upstream-errors.ts'
import { readFault } from './upstream-fault.ts'

/** One server of one provider. */
export type Upstream = {
  /** Our name of the provider. */
  readonly id: string
  /**
   * Asks for an answer. Rejects with a `ServiceError` when there will be none, and with the signal's reason once aborted.
   * After that the events never throw for what the upstream does: a broken answer ends with a `failed` event. Each array
   * is what one read of the network brought, and nothing is read before it is asked for.
   */
  respond(
    request: ModelRequest,
    /** What the provider calls it. */
    model: string,
    signal: AbortSignal,
    options?: AskOptions,
  ): Promise<AsyncIterable<readonly ChatEvent[]>>
  readonly requestsUnderWay: number
  /** As many requests are under way as it may have. */
  readonly isFull: boolean
  /** Asks for something cheap. Rejects when no server answers, or one that is broken or does not accept the key. */
  probe(): Promise<void>
  /** Takes no more requests; resolves when those under way have ended. */
  retire(): Promise<void>
  /** Ends everything under way. */
  close(): Promise<void>
}

export type AskOptions = {
  /** To be sent beside our own, for tracing. */
  readonly headers?: Readonly<Record<string, string>> | undefined
  /** Which requests without an answer are sent once more; `unanswered` when left out. */
  readonly repeats?: Repeats | undefined
  /** Shortens the timeout for the whole answer. */
  readonly totalMsMax?: number | undefined
  /** Called once when an answer that began is over. */
  readonly onEnd?: ((end: AnswerEnd) => void) | undefined
}

/** `left`: its reader did not wait for the end. */
export type AnswerEnd =
  | { readonly type: 'finished' }
  | { readonly type: 'left' }
  | { readonly type: 'failed'; readonly error: ServiceError }

type Body = AnswerHead['body']

const errorBytesMax = 64 * 1024
const errorMsMax = 5_000
/** A provider that sends without end but writes nothing has failed. Far more than any prompt's sealed reasoning. */
const bytesBeforeOutputMax = 16 * 1024 * 1024
const drainBytesMax = 64 * 1024
const drainMsMax = 1_000

export function createUpstream(options: UpstreamOptions): Upstream {
  const { id, protocol } = options
  const connections = createConnections(options)
  const url = new URL(options.baseUrl)
  const hidden = [url.host, url.hostname, options.apiKey ?? ''].filter((word) => word !== '')
  let openCount = 0

  return {
    id,
    get requestsUnderWay() {
      return openCount
    },
    get isFull() {
      return openCount >= options.connectionsMax
    },
    async respond(request, model, signal, { headers, repeats, totalMsMax, onEnd } = {}) {
      signal.throwIfAborted()
      if (openCount >= options.connectionsMax) throw new OverloadedError()
      openCount += 1
      const totalMs = Math.min(options.timeouts.totalMs, totalMsMax ?? Number.POSITIVE_INFINITY)
      const deadline = startDeadline(signal, totalMs, () => {
        openCount -= 1
      })
      try {
        const body = protocol.write(request, model, id)
        const response = await connections.send(body, { headers, repeats, onSend: deadline.follow })
        // The body stops the deadline, not its reader: an answer that is never read must time out too.
        response.body.onClose(deadline.stop)
        if (!isEventStream(response)) throw await refusalOf(response, options, hidden)
        return readEvents(response.body, protocol.createReader(hidden), signal, onEnd)
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
  /** From now on this answer is aborted. */
  readonly follow: (answer: Body) => void
  readonly stop: () => void
}

/**
 * Aborts the answer when the client leaves, or when the time for the whole answer is up. Stopping it twice is stopping it once.
 * Without an AbortController of its own: that cost more than choosing the provider.
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
  const timer = setTimeout(() => abort(new UpstreamTimeoutError(totalMs)), totalMs)
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

function isEventStream({ statusCode, headers }: AnswerHead): boolean {
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
  // Before the last events are given out: their reader need not come back for more.
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
        if (bytesBeforeOutput > bytesBeforeOutputMax) throw new Error('the provider sends without end, and no output')
      }
      if (events.length > 0) yield events
    }
    yield ended(reader.end())
  } catch (error) {
    if (signal.aborted) throw signal.reason
    yield ended(reader.isComplete ? reader.end() : [brokenOff(error)])
  } finally {
    if (!isOver) onEnd?.({ type: 'left' })
    if (reader.ended) drain(body)
    else body.abort(new Error('the answer was left before its end'))
  }
}

/** Reads UTF-8 that may be cut inside a character. A piece that ends with an ASCII character is not, and needs no decoder. */
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

/** A connection can be used again only when its answer was read to the end, which is near: nothing follows the last event. */
function drain(body: Body): void {
  if (body.closed) return
  const timer = setTimeout(() => body.abort(new Error('the answer does not come to its end')), drainMsMax).unref()
  body.onClose(() => clearTimeout(timer))
  body.discard(drainBytesMax)
}

/** The error for an answer that is not a stream of events. Of its body only the beginning is read. */
async function refusalOf(
  { statusCode, headers, body }: AnswerHead,
  { protocol, timeouts }: UpstreamOptions,
  hidden: readonly string[],
) {
  const fault = readFault(await readErrorBody(body, Math.min(errorMsMax, timeouts.firstByteMs)), hidden)
  return refusalError({ statusCode, headers, fault }, protocol.chatParam)
}

async function readErrorBody(body: Body, msMax: number): Promise<unknown> {
  const chunks: Buffer[] = []
  let bytes = 0
  const timer = setTimeout(() => body.abort(new Error('the error does not come to its end')), msMax)
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
