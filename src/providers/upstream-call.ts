import { StringDecoder } from 'node:string_decoder'
import type { Dispatcher } from 'undici'
import { ServiceError } from '../errors.ts'
import { type ChatEvent, isOutput } from '../inference/chat-events.ts'
import type { EventReader } from './protocol.ts'
import type { AskOptions } from './upstream.ts'
import { type Connections, isTimeout, type UpstreamOptions } from './upstream-connections.ts'
import {
  failureError,
  refusalError,
  refusedFault,
  UnreadAnswerError,
  UpstreamError,
  UpstreamTimeoutError,
  unreadFault,
} from './upstream-errors.ts'
import { readFault } from './upstream-fault.ts'

/** Gets the answer of a provider, call by call. Once stopped, it gets nothing more. */
export type AnswerSink = {
  /** The provider has accepted the request. */
  onAccepted(): void
  /**
   * The events of one read from the network; the last event of an answer is `finish` or `failed`. A returned promise is backpressure:
   * nothing more comes before it resolves. It must not reject.
   */
  onEvents(events: readonly ChatEvent[]): Promise<void> | undefined
  /** There will be no answer. */
  onRefused(error: ServiceError): void
}

/** `left`: it was stopped before its end. */
export type UpstreamEnd =
  | { readonly type: 'finished' }
  | { readonly type: 'left' }
  | { readonly type: 'failed'; readonly error: ServiceError }

export type ResponseHead = {
  readonly statusCode: number
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
}

export type CallParts = {
  readonly options: UpstreamOptions
  readonly connections: Connections
  readonly reader: EventReader
  readonly body: string
  /** Words that no message may contain. */
  readonly hidden: readonly string[]
  readonly asked: Pick<AskOptions, 'headers' | 'repeats' | 'totalMsMax' | 'onSent' | 'onEnd'>
  /** Its connection is free, or closed. */
  readonly onClosed: () => void
}

type Controller = Dispatcher.DispatchController

// Backpressure: beyond this, data stays with the upstream until it is read.
const waitingBytesMax = 16 * 1024
const errorBytesMax = 64 * 1024
const errorMsMax = 5_000
/** A provider that sends forever without writing output has failed. Far more than the encrypted reasoning of any prompt. */
const bytesBeforeOutputMax = 16 * 1024 * 1024
const drainBytesMax = 64 * 1024
const drainMsMax = 1_000

/**
 * One request to a provider, and its answer while it arrives. undici's parser feeds it directly, and it calls the sink directly:
 * promises and generators in between would cost more than all other processing.
 *
 *   asking     the head of an event stream         → answering
 *              the head of anything else           → refusing
 *              no connection, or a broken one      → asking again, once; else closed
 *   answering  the last event                      → draining
 *              the connection breaks, or the time is over → closed
 *   refusing   the end of the error's body         → closed
 *   draining   the end of the response             → closed
 */
export class UpstreamCall implements Dispatcher.DispatchHandler {
  readonly #sink: AnswerSink
  readonly #parts: CallParts
  #state: 'asking' | 'answering' | 'refusing' | 'draining' | 'closed' = 'asking'
  #controller: Controller | undefined
  readonly #totalMs: number
  readonly #deadline: NodeJS.Timeout
  /** Of an error's body, or of what follows the last event. */
  #restTimer: NodeJS.Timeout | undefined
  #openedBefore = 0
  #isRepeat = false
  #head: ResponseHead | undefined
  #isBlocked = false
  /** Received and not read yet. */
  #pieces: Buffer[] = []
  #waitingBytes = 0
  /** The response is over, but not all of it was read. */
  #broken: { readonly error: unknown } | 'ended' | undefined
  #decoder: StringDecoder | undefined
  #hasOutput = false
  #bytesBeforeOutput = 0
  #bytesToDiscard = drainBytesMax
  /** The response is over, or was aborted. */
  #isReleased = false

  constructor(sink: AnswerSink, parts: CallParts) {
    const { timeouts } = parts.options
    this.#sink = sink
    this.#parts = parts
    this.#totalMs = Math.min(timeouts.totalMs, parts.asked.totalMsMax ?? Number.POSITIVE_INFINITY)
    this.#deadline = setTimeout(() => this.#timeOut(), this.#totalMs)
    this.#send()
  }

  /** Ends the request, and the upstream's work on it. Harmless after the last event. */
  stop(): void {
    if (this.#state === 'closed' || this.#state === 'draining') return
    this.#parts.asked.onEnd?.({ type: 'left' })
    this.#abort('the reader stopped before the end of the answer')
  }

  // Called by undici

  onRequestStart(controller: Controller): void {
    this.#controller = controller
    if (this.#state === 'closed') controller.abort(new Error('the request was stopped before it was sent'))
    else this.#parts.asked.onSent?.()
  }

  onResponseStart(_controller: Controller, statusCode: number, headers: ResponseHead['headers']): void {
    if (statusCode < 200 || this.#state !== 'asking') return
    if (isEventStream({ statusCode, headers })) {
      this.#state = 'answering'
      this.#sink.onAccepted()
      return
    }
    this.#state = 'refusing'
    this.#head = { statusCode, headers }
    const { firstByteMs } = this.#parts.options.timeouts
    this.#restTimer = setTimeout(() => this.#refuse(), Math.min(errorMsMax, firstByteMs))
  }

  onResponseData(controller: Controller, piece: Buffer): void {
    if (this.#state === 'answering' && !this.#isBlocked && this.#pieces.length === 0) {
      this.#read(piece)
      return
    }
    if (this.#state === 'draining') {
      this.#bytesToDiscard -= piece.length
      if (this.#bytesToDiscard < 0) this.#abort('connection closed: more unread data than the drain limit')
      return
    }
    this.#pieces.push(piece)
    this.#waitingBytes += piece.length
    if (this.#state === 'refusing') {
      if (this.#waitingBytes > errorBytesMax) this.#refuse()
    } else if (this.#waitingBytes >= waitingBytesMax) controller.pause()
  }

  onResponseEnd(): void {
    this.#released()
    if (this.#state === 'refusing') this.#refuse()
    else if (this.#state === 'answering') this.#over('ended')
    else this.#state = 'closed'
  }

  onResponseError(_controller: Controller, error: unknown): void {
    if (this.#state === 'asking') {
      // undici reports only after this call that no connection could be opened.
      queueMicrotask(() => this.#askAgain(error))
      return
    }
    this.#released()
    if (this.#state === 'refusing') this.#refuse()
    else if (this.#state === 'answering') this.#over({ error })
    else this.#state = 'closed'
  }

  #askAgain(error: unknown): void {
    if (this.#state !== 'asking') return
    const { connections, asked } = this.#parts
    const isRepeated =
      !this.#isRepeat && connections.isRepeatable(error, this.#openedBefore, asked.repeats ?? 'unanswered')
    this.#isRepeat = true
    if (isRepeated) this.#send()
    else this.#refuseWith(asServiceError(error))
  }

  #send(): void {
    const { connections, body, asked } = this.#parts
    this.#openedBefore = connections.openedCount
    connections.dispatch(body, asked.headers, this)
  }

  // The answer

  #read(piece: Buffer): void {
    const { reader } = this.#parts
    const events = reader.push(this.#decode(piece))
    if (reader.ended) {
      this.#end(events)
      return
    }
    if (!this.#hasOutput) {
      this.#hasOutput = events.some(isOutput)
      this.#bytesBeforeOutput += piece.length
      if (this.#bytesBeforeOutput > bytesBeforeOutputMax) {
        this.#end([brokenOff(new Error('the provider sent too many bytes without output'))])
        return
      }
    }
    if (events.length === 0) return
    const drained = this.#sink.onEvents(events)
    if (drained === undefined) return
    this.#isBlocked = true
    void drained.then(() => this.#goOn())
  }

  /** The sink takes more. */
  #goOn(): void {
    this.#isBlocked = false
    while (!this.#isBlocked && this.#state === 'answering') {
      const piece = this.#pieces.shift()
      if (piece === undefined) break
      this.#waitingBytes -= piece.length
      this.#read(piece)
      // After this piece was read: undici may pass on the next one during this call.
      if (this.#state === 'answering' && this.#waitingBytes < waitingBytesMax) this.#controller?.resume()
    }
    if (this.#broken !== undefined) this.#over(this.#broken)
  }

  /** The response is over: the answer is, once all of it was read. */
  #over(how: { readonly error: unknown } | 'ended'): void {
    this.#broken ??= how
    if (this.#isBlocked || this.#pieces.length > 0 || this.#state !== 'answering') return
    const { reader } = this.#parts
    const broken = this.#broken
    if (broken === 'ended' || reader.isComplete) this.#end(reader.end())
    // The client was slow: the provider's end is that of an answer whose reader left.
    else if (broken.error instanceof UnreadAnswerError) {
      this.#end([{ type: 'failed', code: unreadFault, message: broken.error.message }], { type: 'left' })
    } else this.#end([brokenOff(broken.error)])
  }

  #end(events: readonly ChatEvent[], end: UpstreamEnd = endOf(events)): void {
    this.#parts.asked.onEnd?.(end)
    if (this.#parts.reader.ended && this.#broken === undefined) this.#drain()
    else this.#abort('the answer is over')
    void this.#sink.onEvents(events)
  }

  /** A connection can be reused only if its answer was read to the end. The end is near: nothing follows the last event. */
  #drain(): void {
    this.#state = 'draining'
    this.#bytesToDiscard -= this.#waitingBytes
    this.#pieces = []
    this.#restTimer = setTimeout(
      () => this.#abort('the answer did not end within the drain timeout'),
      drainMsMax,
    ).unref()
    this.#controller?.resume()
  }

  #timeOut(): void {
    const isUnread = this.#pieces.length > 0
    if (this.#state === 'asking') this.#refuseWith(new UpstreamTimeoutError(this.#totalMs))
    else if (this.#state === 'refusing') this.#refuse()
    else if (this.#state === 'draining') this.#abort('the answer did not end in time')
    else if (this.#state === 'answering') {
      this.#pieces = []
      // Before the abort, which is an error of the connection, too.
      this.#broken ??= { error: isUnread ? new UnreadAnswerError() : new UpstreamTimeoutError(this.#totalMs) }
      this.#controller?.abort(new Error('the answer did not end in time'))
      this.#released()
      this.#over(this.#broken)
    }
  }

  /** Decodes UTF-8 that may be cut inside a character. A piece that ends with an ASCII character is not cut, and needs no decoder. */
  #decode(piece: Buffer): string {
    if (this.#decoder === undefined && piece[piece.length - 1]! < 0x80) return piece.toString('utf8')
    this.#decoder ??= new StringDecoder('utf8')
    return this.#decoder.write(piece)
  }

  // No answer

  /** The response is not an event stream: its status and the beginning of its body say why. */
  #refuse(): void {
    const { hidden, options } = this.#parts
    const fault = readFault(parseJson(Buffer.concat(this.#pieces)), hidden, refusedFault)
    this.#refuseWith(refusalError({ ...this.#head!, fault }, options.protocol))
  }

  #refuseWith(error: ServiceError): void {
    this.#parts.asked.onEnd?.({ type: 'failed', error })
    this.#abort('there is no answer to read')
    this.#sink.onRefused(error)
  }

  #abort(why: string): void {
    this.#state = 'closed'
    this.#pieces = []
    if (!this.#isReleased) this.#controller?.abort(new Error(why))
    this.#released()
  }

  #released(): void {
    if (this.#isReleased) return
    this.#isReleased = true
    clearTimeout(this.#deadline)
    clearTimeout(this.#restTimer)
    this.#parts.onClosed()
  }
}

function endOf(events: readonly ChatEvent[]): UpstreamEnd {
  const last = events.at(-1)
  return last?.type === 'failed' ? { type: 'failed', error: failureError(last) } : { type: 'finished' }
}

export function asServiceError(error: unknown): ServiceError {
  if (error instanceof ServiceError) return error
  if (isTimeout(error)) return new UpstreamTimeoutError(undefined, error)
  return new UpstreamError('The model could not be reached. Try again.', { cause: error })
}

function isEventStream({ statusCode, headers }: ResponseHead): boolean {
  const type = String(headers['content-type'] ?? '')
  const encoding = headers['content-encoding'] ?? 'identity'
  return statusCode === 200 && /^text\/event-stream\b/i.test(type) && encoding === 'identity'
}

function brokenOff(error: unknown): ChatEvent {
  const timedOut = isTimeout(error) || error instanceof UpstreamTimeoutError
  return timedOut
    ? { type: 'failed', code: 'upstream_timeout', message: 'The model stopped sending its answer.' }
    : { type: 'failed', code: 'upstream_reset', message: 'The connection to the model was lost during the answer.' }
}

function parseJson(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString('utf8'))
  } catch {
    return undefined
  }
}
