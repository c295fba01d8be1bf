import type { ServerResponse } from 'node:http'
import { disconnectWhenBlocked, sendLast } from '../http/send.ts'
import type { ChatEvent } from '../inference/chat-events.ts'
import { type ChunkRenderer, keepaliveComment } from './chat-chunks.ts'

export type EventStreamOptions = {
  readonly headers: Readonly<Record<string, string>>
  /** After this much silence a comment line is sent: proxies close silent connections. */
  readonly silenceMsMax: number
  /** A client that reads nothing for this long counts as disconnected. */
  readonly blockedMsMax: number
}

/**
 * Server-sent events to one client. Headers and the role chunk are sent together when the upstream has accepted, or after the first
 * silence. Backpressure: what the client does not read is not read from the upstream.
 */
export class EventStream {
  readonly #outgoing: ServerResponse
  readonly #renderer: ChunkRenderer
  readonly #options: EventStreamOptions
  readonly #silence: NodeJS.Timeout

  constructor(outgoing: ServerResponse, renderer: ChunkRenderer, options: EventStreamOptions) {
    this.#outgoing = outgoing
    this.#renderer = renderer
    this.#options = options
    this.#silence = setInterval(() => this.#breakSilence(), options.silenceMsMax)
    outgoing.once('close', () => clearInterval(this.#silence))
  }

  get committed(): boolean {
    return this.#outgoing.headersSent
  }

  /** Writes events. Resolves when the client's socket can take more. */
  deliver(events: readonly ChatEvent[]): Promise<void> | undefined {
    const opening = this.committed ? '' : this.#open()
    const text = opening + this.#renderer.events(events)
    if (text === '' || this.#outgoing.destroyed) return undefined
    this.#silence.refresh()
    return this.#outgoing.write(text) ? undefined : this.#drained()
  }

  end(closing: string): void {
    clearInterval(this.#silence)
    const opening = this.committed ? '' : this.#open()
    sendLast(this.#outgoing, opening + closing, this.#options.blockedMsMax)
  }

  /** Stops the timer after a disconnect, or when the answer is an ordinary error response. */
  abandon(): void {
    clearInterval(this.#silence)
  }

  #open(): string {
    this.#outgoing.writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache',
      'x-accel-buffering': 'no',
      ...this.#options.headers,
    })
    return this.#renderer.role
  }

  #breakSilence(): void {
    // A client that reads nothing needs no comment: another write would only grow the buffer.
    if (this.#outgoing.writableNeedDrain) return
    this.#outgoing.write(this.committed ? keepaliveComment : this.#open())
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
