import type { ServerResponse } from 'node:http'
import type { AnswerReader } from '../chat/answer.ts'
import type { AnswerEnd } from '../chat/log.ts'
import { errorResponse, isRepeatable } from '../http/error-response.ts'
import { disconnectWhenBlocked, sendJson, sendLast } from '../http/send.ts'
import type { ChatEvent } from '../inference/chat-events.ts'
import {
  type ChunkRenderer,
  type CompletionHead,
  costOf,
  createChunkRenderer,
  keepaliveComment,
} from './chat-chunks.ts'
import type { ReaderOptions } from './reader.ts'

/**
 * Server-sent events to one client. Headers and the role chunk are sent together when the upstream has accepted, or after the first
 * silence. Backpressure: what the client does not read is not read from the upstream.
 */
export class StreamReader implements AnswerReader {
  readonly #outgoing: ServerResponse
  readonly #renderer: ChunkRenderer
  readonly #options: ReaderOptions
  readonly #silence: NodeJS.Timeout
  /** Set with the headers. Not for HTTP/1.0, whose connection ends with the answer. */
  #isChunked = false

  constructor(
    outgoing: ServerResponse,
    head: CompletionHead & { readonly includeUsage: boolean },
    options: ReaderOptions,
  ) {
    this.#outgoing = outgoing
    this.#renderer = createChunkRenderer(head)
    this.#options = options
    this.#silence = setInterval(() => this.#breakSilence(), options.streamKeepaliveMs)
    outgoing.once('close', () => clearInterval(this.#silence))
  }

  /** Writes events. Resolves when the client's socket can take more. */
  deliver(events: readonly ChatEvent[]): Promise<void> | undefined {
    const opening = this.#outgoing.headersSent ? '' : this.#open()
    const text = opening + this.#renderer.events(events)
    if (text === '' || this.#outgoing.destroyed) return undefined
    this.#silence.refresh()
    return this.#outgoing.write(this.#chunk(text)) ? undefined : this.#drained()
  }

  succeed(end: AnswerEnd): void {
    const { finish, usage, done } = this.#renderer
    this.#end(finish(end.finishReason) + usage(end.usage, costOf(end)) + done)
  }

  fail(error: unknown): boolean {
    const { headersSent, destroyed } = this.#outgoing
    const { status, body, headers } = errorResponse(error, this.#options)
    if (headersSent) this.#end(this.#renderer.error(body))
    else {
      this.abandon()
      sendJson(this.#outgoing, status, body, { ...this.#options.headers, ...headers })
    }
    return isRepeatable(error) && !headersSent && !destroyed
  }

  abandon(): void {
    clearInterval(this.#silence)
  }

  #end(closing: string): void {
    clearInterval(this.#silence)
    const opening = this.#outgoing.headersSent ? '' : this.#open()
    const last = this.#chunk(opening + closing) + (this.#isChunked ? '0\r\n\r\n' : '')
    sendLast(this.#outgoing, last, this.#options.blockedMsMax)
  }

  #open(): string {
    this.#outgoing.writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache',
      'x-accel-buffering': 'no',
      ...this.#options.headers,
    })
    this.#isChunked = this.#outgoing.chunkedEncoding
    this.#outgoing.chunkedEncoding = false
    return this.#renderer.role
  }

  /** One chunk of the body, in one piece. Node's own takes four, and a slower system call that gathers them. */
  #chunk(text: string): string {
    return this.#isChunked ? `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n` : text
  }

  #breakSilence(): void {
    // A client that reads nothing needs no comment: another write would only grow the buffer.
    if (this.#outgoing.writableNeedDrain) return
    this.#outgoing.write(this.#chunk(this.#outgoing.headersSent ? keepaliveComment : this.#open()))
  }

  #drained(): Promise<void> {
    return new Promise((resolve) => {
      const outgoing = this.#outgoing
      const stop = disconnectWhenBlocked(outgoing, this.#options.blockedMsMax)
      const goOn = () => {
        stop()
        outgoing.off('drain', goOn)
        outgoing.off('close', goOn)
        resolve()
      }
      outgoing.once('drain', goOn)
      outgoing.once('close', goOn)
    })
  }
}
