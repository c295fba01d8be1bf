import { connect, type Socket } from 'node:net'
import { readLines } from './json-lines.ts'
import { signerSocketPath } from './signer-socket.ts'
import { batchMax, encodeRequest, type SigningAnswer, type SigningRequest } from './signing-request.ts'

export type SignerLineOptions = {
  readonly dataDir: string
  /** How long a request may wait in total, including while the signer is down. */
  readonly waitMsMax?: number
  /** How long the signer may be silent while an answer is outstanding. After that it counts as hung. */
  readonly silentMsMax?: number
  readonly queueMax?: number
}

type Waiting = {
  readonly text: string
  readonly untilMs: number
  readonly resolve: (answer: SigningAnswer) => void
  readonly reject: (error: Error) => void
}

/** `idle`: not connected, and nothing to send. `backoff`: the signer is down; waits before the next connection attempt. */
type State = 'idle' | 'connecting' | 'connected' | 'backoff' | 'closed'

// Two batches in flight keep the signer busy: it has the next batch when it finishes one.
const pipelinedMax = 2
const lineBytesMax = 128 * 1024
const reconnectMsMin = 10
const reconnectMsMax = 500
const checkMs = 100

/**
 * The connection to the signer process. Requests of the same turn of the event loop are batched; several batches are in flight
 * concurrently. When the connection breaks or the signer is silent, unanswered requests are sent again: signing is deterministic,
 * so a retry is safe.
 */
export class SignerLine {
  readonly #options: Required<SignerLineOptions>
  /** Oldest first, so that expired requests are at the front. */
  readonly #queue: Waiting[] = []
  readonly #inFlight = new Map<number, readonly Waiting[]>()
  #state: State = 'idle'
  #socket: Socket | undefined
  #isFlushing = false
  #reconnectMs = reconnectMsMin
  #check: NodeJS.Timeout | undefined
  #batchId = 0
  #lastAnswerMs = 0

  constructor(options: SignerLineOptions) {
    this.#options = { waitMsMax: 30_000, silentMsMax: 5_000, queueMax: 20_000, ...options }
  }

  ask(request: SigningRequest): Promise<SigningAnswer> {
    if (this.#state === 'closed') return Promise.reject(new SignerUnavailableError('is closed'))
    if (this.#queue.length >= this.#options.queueMax) return Promise.reject(new SignerUnavailableError('is overloaded'))
    const { promise, resolve, reject } = Promise.withResolvers<SigningAnswer>()
    const untilMs = performance.now() + this.#options.waitMsMax
    this.#queue.push({ text: encodeRequest(request), untilMs, resolve, reject })
    this.#check ??= setInterval(() => this.#checkTimeouts(), checkMs)
    this.#flushSoon()
    return promise
  }

  close(): void {
    this.#state = 'closed'
    this.#socket?.destroy()
    this.#reclaim()
    for (const { reject } of this.#queue.splice(0)) reject(new SignerUnavailableError('is closed'))
    this.#stopChecking()
  }

  /** Batches all requests of one turn of the event loop. */
  #flushSoon(): void {
    if (this.#isFlushing) return
    this.#isFlushing = true
    queueMicrotask(() => {
      this.#isFlushing = false
      if (this.#state === 'idle') void this.#connect()
      this.#flush()
    })
  }

  #flush(): void {
    while (this.#state === 'connected' && this.#inFlight.size < pipelinedMax && this.#queue.length > 0) {
      const batch = this.#queue.splice(0, batchMax)
      if (this.#inFlight.size === 0) this.#lastAnswerMs = performance.now()
      this.#batchId += 1
      this.#inFlight.set(this.#batchId, batch)
      this.#socket!.write(`{"id":${this.#batchId},"requests":[${batch.map(({ text }) => text).join(',')}]}\n`)
    }
  }

  async #connect(): Promise<void> {
    this.#state = 'connecting'
    const path = await signerSocketPath(this.#options.dataDir).catch(() => undefined)
    if (this.#hasClosed()) return
    if (path === undefined) {
      this.#backOff()
      return
    }
    const socket = connect(path)
    this.#socket = socket
    socket.on('connect', () => {
      this.#state = 'connected'
      this.#flush()
    })
    readLines(socket, {
      bytesMax: lineBytesMax,
      onLine: (line) => this.#receive(line),
      onTooLong: () => this.#distrust('sent an endless line'),
    })
    socket.on('error', () => socket.destroy())
    socket.on('close', () => this.#onDisconnect())
  }

  #receive(line: string): void {
    this.#lastAnswerMs = performance.now()
    this.#reconnectMs = reconnectMsMin
    const { id, answers } = parseAnswers(line) ?? {}
    const batch = id === undefined ? undefined : this.#inFlight.get(id)
    if (id === undefined || batch === undefined || answers?.length !== batch.length) {
      this.#distrust('sent an invalid answer')
      return
    }
    this.#inFlight.delete(id)
    for (const [index, { resolve }] of batch.entries()) resolve(answers[index]!)
    if (this.#isIdle()) this.#stopChecking()
    this.#flush()
  }

  #onDisconnect(): void {
    if (this.#hasClosed()) return
    this.#socket = undefined
    this.#reclaim()
    // With nothing to send, the next request reconnects.
    if (this.#queue.length === 0) this.#state = 'idle'
    else this.#backOff()
  }

  #backOff(): void {
    this.#state = 'backoff'
    setTimeout(() => {
      if (this.#hasClosed()) return
      this.#state = 'idle'
      if (this.#queue.length > 0) void this.#connect()
    }, this.#reconnectMs)
    this.#reconnectMs = Math.min(2 * this.#reconnectMs, reconnectMsMax)
  }

  /** Moves unanswered requests back to the front of the queue, in order. */
  #reclaim(): void {
    this.#queue.unshift(...[...this.#inFlight.values()].flat())
    this.#inFlight.clear()
  }

  /** Invalid output is not retried: a process that sends it may next send a signature that must not be trusted. */
  #distrust(what: string): void {
    for (const { reject } of [...this.#inFlight.values()].flat()) reject(new SignerFaultError(what))
    this.#inFlight.clear()
    this.#socket?.destroy()
  }

  #checkTimeouts(): void {
    const nowMs = performance.now()
    while (this.#queue.length > 0 && this.#queue[0]!.untilMs <= nowMs) {
      this.#queue.shift()!.reject(new SignerUnavailableError('does not answer'))
    }
    // When the socket closes, requests in flight go back to the queue. There they are sent again or time out.
    if (this.#inFlight.size > 0 && nowMs - this.#lastAnswerMs > this.#options.silentMsMax) this.#socket?.destroy()
    if (this.#isIdle()) this.#stopChecking()
  }

  #isIdle(): boolean {
    return this.#queue.length === 0 && this.#inFlight.size === 0
  }

  #stopChecking(): void {
    clearInterval(this.#check)
    this.#check = undefined
  }

  /** Checked after every await. A method, because the compiler assumes that a narrowed state does not change. */
  #hasClosed(): boolean {
    return this.#state === 'closed'
  }
}

function parseAnswers(line: string): { readonly id: number; readonly answers: readonly SigningAnswer[] } | undefined {
  try {
    const { id, answers } = JSON.parse(line) as { id: unknown; answers: unknown }
    if (typeof id !== 'number' || !Array.isArray(answers)) return undefined
    return { id, answers }
  } catch {
    return undefined
  }
}

/** The signer is down, hung or overloaded. Retrying is safe at any time. */
export class SignerUnavailableError extends Error {
  constructor(what: string) {
    super(`the signer ${what}`)
    this.name = 'SignerUnavailableError'
  }
}

/** The signer sent something that a correct signer cannot send. Stop it and investigate; do not retry. */
export class SignerFaultError extends Error {
  constructor(what: string) {
    super(`the signer cannot be trusted: it ${what}`)
    this.name = 'SignerFaultError'
  }
}
