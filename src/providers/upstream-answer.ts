import type { Dispatcher } from 'undici'

export type ResponseHead = {
  readonly statusCode: number
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly body: UpstreamAnswer
}

type Controller = Dispatcher.DispatchController

// Backpressure: beyond this, data stays with the upstream until it is read.
const waitingBytesMax = 16 * 1024

/**
 * One answer of the upstream while it arrives. undici's parser feeds it directly: a stream in between would cost more per chunk than
 * all other processing.
 */
export class UpstreamAnswer implements Dispatcher.DispatchHandler {
  /** Resolves with the response headers, or rejects with the raw error. Must be awaited. */
  readonly head: Promise<ResponseHead>
  /** Nothing more arrives, after success or failure. */
  closed = false
  readonly #onSent: () => void
  readonly #head = Promise.withResolvers<ResponseHead>()
  readonly #onClose: (() => void)[] = []
  readonly #pieces: Buffer[] = []
  #waitingBytes = 0
  #reader: PromiseWithResolvers<Buffer | undefined> | undefined
  #failure: { readonly error: unknown } | undefined
  #controller: Controller | undefined
  #bytesToDiscard = 0
  #isDiscarding = false

  /** `onSent` is called when the request is written to a connection. */
  constructor(onSent: () => void = () => {}) {
    this.head = this.#head.promise
    this.#onSent = onSent
  }

  /** The upstream has sent more than was read. */
  get hasUnread(): boolean {
    return this.#pieces.length > 0
  }

  /** The next chunk; undefined at the end. One reader at a time. */
  read(): Promise<Buffer | undefined> | Buffer | undefined {
    const piece = this.#pieces.shift()
    if (piece !== undefined) {
      this.#waitingBytes -= piece.length
      if (this.#waitingBytes < waitingBytesMax) this.#controller?.resume()
      return piece
    }
    if (this.#failure !== undefined) return Promise.reject(this.#failure.error)
    if (this.closed) return undefined
    this.#reader = Promise.withResolvers()
    return this.#reader.promise
  }

  /** Aborts the answer and closes its connection. */
  abort(reason: unknown): void {
    this.#pieces.length = 0
    this.#fail(reason)
    this.#controller?.abort(reason as Error)
  }

  /** Reads and discards the rest, so that the connection can be reused. Gives up after this many bytes. */
  discard(bytesMax: number): void {
    this.#isDiscarding = true
    this.#bytesToDiscard = bytesMax - this.#waitingBytes
    this.#pieces.length = 0
    this.#controller?.resume()
  }

  onClose(listener: () => void): void {
    if (this.closed) listener()
    else this.#onClose.push(listener)
  }

  onRequestStart(controller: Controller): void {
    this.#controller = controller
    if (this.#failure === undefined) this.#onSent()
    else controller.abort(this.#failure.error as Error)
  }

  onResponseStart(_controller: Controller, statusCode: number, headers: ResponseHead['headers']): void {
    if (statusCode >= 200) this.#head.resolve({ statusCode, headers, body: this })
  }

  onResponseData(controller: Controller, piece: Buffer): void {
    if (this.#isDiscarding) {
      this.#bytesToDiscard -= piece.length
      if (this.#bytesToDiscard < 0) this.abort(new Error('connection closed: more unread data than the drain limit'))
    } else if (this.#reader !== undefined) {
      const { resolve } = this.#reader
      this.#reader = undefined
      resolve(piece)
    } else {
      this.#pieces.push(piece)
      this.#waitingBytes += piece.length
      if (this.#waitingBytes >= waitingBytesMax) controller.pause()
    }
  }

  onResponseEnd(): void {
    this.#reader?.resolve(undefined)
    this.#close()
  }

  onResponseError(_controller: Controller, error: unknown): void {
    this.#fail(error)
  }

  #fail(error: unknown): void {
    if (this.closed) return
    this.#failure = { error }
    this.#head.reject(error)
    this.#reader?.reject(error)
    this.#close()
  }

  #close(): void {
    this.closed = true
    this.#reader = undefined
    for (const listener of this.#onClose) listener()
  }
}
