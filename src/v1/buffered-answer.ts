import type { ServerResponse } from 'node:http'
import { sendLast } from '../http/send.ts'

export type BufferedAnswerOptions = {
  readonly headers: Readonly<Record<string, string>>
  /** After so long the headers are committed and white space keeps the connection alive. */
  readonly keepaliveAfterMs: number
  readonly keepaliveEveryMs: number
  /** A reader that takes nothing for so long is treated as gone. */
  readonly blockedMsMax: number
}

/**
 * One JSON body. A slow one commits its status early and pads with white space, which is legal before a JSON text; what
 * is only known at the end, the charge or an error, is then told in the body alone.
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

  /** `headers` are added only where they still can be. */
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

  /** Stops the timer of an answer that has nobody to go to. */
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
