import type { ServerResponse } from 'node:http'
import { sendLast } from '../http/send.ts'

export type BufferedAnswerOptions = {
  readonly headers: Readonly<Record<string, string>>
  /** After this time the headers are sent, and white space keeps the connection alive. */
  readonly keepaliveAfterMs: number
  readonly keepaliveEveryMs: number
  /** A client that reads nothing for this long counts as disconnected. */
  readonly blockedMsMax: number
}

/**
 * One JSON body. A slow answer sends its status early and pads with white space, which JSON allows. What is known only at the end, the
 * charge or an error, is then in the body only.
 */
export class BufferedAnswer {
  readonly #outgoing: ServerResponse
  readonly #options: BufferedAnswerOptions
  #timer: NodeJS.Timeout

  constructor(outgoing: ServerResponse, options: BufferedAnswerOptions) {
    this.#outgoing = outgoing
    this.#options = options
    this.#timer = setTimeout(() => this.#keepAlive(), options.keepaliveAfterMs)
    outgoing.once('close', () => clearTimeout(this.#timer))
  }

  /** `headers` are dropped when the headers were already sent. */
  end(status: number, body: object, headers: Readonly<Record<string, string>>): void {
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

  /** Stops the timer after a disconnect. */
  abandon(): void {
    clearTimeout(this.#timer)
  }

  #keepAlive(): void {
    if (!this.#outgoing.headersSent) {
      this.#outgoing.writeHead(200, { 'content-type': 'application/json', ...this.#options.headers })
    }
    this.#outgoing.write(' ')
    this.#timer = setTimeout(() => this.#keepAlive(), this.#options.keepaliveEveryMs)
  }
}
