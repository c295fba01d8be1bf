import type { ServerResponse } from 'node:http'
import type { AnswerReader } from '../chat/answer.ts'
import type { AnswerEnd } from '../chat/log.ts'
import { errorResponse, isRepeatable } from '../http/error-response.ts'
import { sendLast } from '../http/send.ts'
import type { ChatEvent } from '../inference/chat-events.ts'
import { type Usdc, zero } from '../money/usdc.ts'
import { type CompletionHead, completionBody, costOf, createMessageAssembler } from './chat-chunks.ts'
import type { ReaderOptions } from './reader.ts'

/**
 * One JSON body. A slow answer sends its status early and pads with white space, which JSON allows. What is known only at the end, the
 * charge or an error, is then in the body only.
 */
export class BodyReader implements AnswerReader {
  readonly #outgoing: ServerResponse
  readonly #head: CompletionHead
  readonly #options: ReaderOptions
  readonly #message = createMessageAssembler()
  #timer: NodeJS.Timeout

  constructor(outgoing: ServerResponse, head: CompletionHead, options: ReaderOptions) {
    this.#outgoing = outgoing
    this.#head = head
    this.#options = options
    this.#timer = setTimeout(() => this.#keepAlive(), options.keepaliveAfterMs)
    outgoing.once('close', () => clearTimeout(this.#timer))
  }

  deliver(events: readonly ChatEvent[]): undefined {
    this.#message.add(events)
  }

  succeed(end: AnswerEnd, headers: Readonly<Record<string, string>> = {}): void {
    const { finishReason, usage, charged } = end
    const message = this.#message.finish()
    const body = completionBody({ ...this.#head, message, finishReason, usage, cost: costOf(end) })
    this.#end(200, body, { 'x-router-charged-usdc': charged.toString(), ...headers })
  }

  fail(error: unknown, charged: Usdc = zero): boolean {
    const { headersSent, destroyed } = this.#outgoing
    const { status, body, headers } = errorResponse(error, this.#options)
    this.#end(status, body, { ...headers, 'x-router-charged-usdc': charged.toString() })
    return isRepeatable(error) && !headersSent && !destroyed
  }

  abandon(): void {
    clearTimeout(this.#timer)
  }

  /** `headers` are dropped when the headers were already sent. */
  #end(status: number, body: object, headers: Readonly<Record<string, string>>): void {
    clearTimeout(this.#timer)
    const text = JSON.stringify(body)
    if (!this.#outgoing.headersSent) {
      this.#outgoing.writeHead(status, {
        'content-type': 'application/json',
        'content-length': String(Buffer.byteLength(text)),
        ...this.#options.headers,
        ...headers,
      })
    }
    sendLast(this.#outgoing, text, this.#options.blockedMsMax)
  }

  #keepAlive(): void {
    if (!this.#outgoing.headersSent) {
      this.#outgoing.writeHead(200, { 'content-type': 'application/json', ...this.#options.headers })
    }
    this.#outgoing.write(' ')
    this.#timer = setTimeout(() => this.#keepAlive(), this.#options.streamKeepaliveMs)
  }
}
