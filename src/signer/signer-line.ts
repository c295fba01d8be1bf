import { connect, type Socket } from 'node:net'
import { readLines } from './json-lines.ts'
import { signerSocketPath } from './signer-socket.ts'
import { batchMax, encodeRequest, type SigningAnswer, type SigningRequest } from './signing-request.ts'

export type SignerLineOptions = {
  readonly dataDir: string
  /** How long a request waits in all, also while the signer is away. */
  readonly waitMsMax?: number
  /** How long the signer may be silent while it owes an answer, before it is taken for hung. */
  readonly silentMsMax?: number
  readonly queueMax?: number
}

type Waiting = {
  readonly text: string
  readonly untilMs: number
  readonly resolve: (answer: SigningAnswer) => void
  readonly reject: (error: Error) => void
}

/** `resting`: not connected, and nothing to connect for. `pausing`: the signer is away, and the next try has its time. */
type State = 'resting' | 'connecting' | 'connected' | 'pausing' | 'closed'

// Two batches under way keep the signer busy: it has the next one when it is done with the last.
const pipelinedMax = 2
const lineBytesMax = 128 * 1024
const reconnectMsMin = 10
const reconnectMsMax = 500
const lookMs = 100

/**
 * The way to the signer process: requests of one moment go in batches, several batches at once. When the connection breaks
 * or the signer is silent, what it has not answered is asked again: signing is deterministic, so asking twice is the
 * same as asking once.
 */
export class SignerLine {
  readonly #options: Required<SignerLineOptions>
  /** Oldest first, so that those whose time is up stand in front. */
  readonly #queue: Waiting[] = []
  readonly #underWay = new Map<number, readonly Waiting[]>()
  #state: State = 'resting'
  #socket: Socket | undefined
  #isFlushing = false
  #reconnectMs = reconnectMsMin
  #look: NodeJS.Timeout | undefined
  #batchId = 0
  #heardMs = 0

  constructor(options: SignerLineOptions) {
    this.#options = { waitMsMax: 30_000, silentMsMax: 5_000, queueMax: 20_000, ...options }
  }

  ask(request: SigningRequest): Promise<SigningAnswer> {
    if (this.#state === 'closed') return Promise.reject(new SignerUnavailableError('is closed'))
    if (this.#queue.length >= this.#options.queueMax) return Promise.reject(new SignerUnavailableError('is overloaded'))
    const { promise, resolve, reject } = Promise.withResolvers<SigningAnswer>()
    const untilMs = performance.now() + this.#options.waitMsMax
    this.#queue.push({ text: encodeRequest(request), untilMs, resolve, reject })
    this.#look ??= setInterval(() => this.#lookAfter(), lookMs)
    this.#flushSoon()
    return promise
  }

  close(): void {
    this.#state = 'closed'
    this.#socket?.destroy()
    this.#reclaim()
    for (const { reject } of this.#queue.splice(0)) reject(new SignerUnavailableError('is closed'))
    this.#stopLooking()
  }

  /** What is asked in one turn of the event loop goes together. */
  #flushSoon(): void {
    if (this.#isFlushing) return
    this.#isFlushing = true
    queueMicrotask(() => {
      this.#isFlushing = false
      if (this.#state === 'resting') void this.#connect()
      this.#flush()
    })
  }

  #flush(): void {
    while (this.#state === 'connected' && this.#underWay.size < pipelinedMax && this.#queue.length > 0) {
      const batch = this.#queue.splice(0, batchMax)
      if (this.#underWay.size === 0) this.#heardMs = performance.now()
      this.#batchId += 1
      this.#underWay.set(this.#batchId, batch)
      this.#socket!.write(`{"id":${this.#batchId},"requests":[${batch.map(({ text }) => text).join(',')}]}\n`)
    }
  }

  async #connect(): Promise<void> {
    this.#state = 'connecting'
    const path = await signerSocketPath(this.#options.dataDir).catch(() => undefined)
    if (this.#hasClosed()) return
    if (path === undefined) {
      this.#pause()
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
      onLine: (line) => this.#hear(line),
      onTooLong: () => this.#distrust('sent a line without end'),
    })
    socket.on('error', () => socket.destroy())
    socket.on('close', () => this.#lose())
  }

  #hear(line: string): void {
    this.#heardMs = performance.now()
    this.#reconnectMs = reconnectMsMin
    const { id, answers } = parseAnswers(line) ?? {}
    const batch = id === undefined ? undefined : this.#underWay.get(id)
    if (id === undefined || batch === undefined || answers?.length !== batch.length) {
      this.#distrust('sent what is no answer')
      return
    }
    this.#underWay.delete(id)
    for (const [index, { resolve }] of batch.entries()) resolve(answers[index]!)
    if (this.#isIdle()) this.#stopLooking()
    this.#flush()
  }

  #lose(): void {
    if (this.#hasClosed()) return
    this.#socket = undefined
    this.#reclaim()
    // An idle line is taken up again with the next request.
    if (this.#queue.length === 0) this.#state = 'resting'
    else this.#pause()
  }

  #pause(): void {
    this.#state = 'pausing'
    setTimeout(() => {
      if (this.#hasClosed()) return
      this.#state = 'resting'
      if (this.#queue.length > 0) void this.#connect()
    }, this.#reconnectMs)
    this.#reconnectMs = Math.min(2 * this.#reconnectMs, reconnectMsMax)
  }

  /** What was asked and not answered comes first in the next batches, in its order. */
  #reclaim(): void {
    this.#queue.unshift(...[...this.#underWay.values()].flat())
    this.#underWay.clear()
  }

  /** Garbage is not asked for again: whoever sends it may next send a signature that nobody should believe. */
  #distrust(what: string): void {
    for (const { reject } of [...this.#underWay.values()].flat()) reject(new SignerFaultError(what))
    this.#underWay.clear()
    this.#socket?.destroy()
  }

  #lookAfter(): void {
    const nowMs = performance.now()
    while (this.#queue.length > 0 && this.#queue[0]!.untilMs <= nowMs) {
      this.#queue.shift()!.reject(new SignerUnavailableError('does not answer'))
    }
    // What is under way goes back to the queue when the socket closes, and is asked again or given up there.
    if (this.#underWay.size > 0 && nowMs - this.#heardMs > this.#options.silentMsMax) this.#socket?.destroy()
    if (this.#isIdle()) this.#stopLooking()
  }

  #isIdle(): boolean {
    return this.#queue.length === 0 && this.#underWay.size === 0
  }

  #stopLooking(): void {
    clearInterval(this.#look)
    this.#look = undefined
  }

  /** Asked after every wait. A method, since the compiler believes that a state it has seen stays as it is. */
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

/** The signer is away, hung or overloaded. What was asked can be asked again at any time. */
export class SignerUnavailableError extends Error {
  constructor(what: string) {
    super(`the signer ${what}`)
    this.name = 'SignerUnavailableError'
  }
}

/** The signer said something that it cannot honestly say. It is to be stopped and looked at, not asked again. */
export class SignerFaultError extends Error {
  constructor(what: string) {
    super(`the signer cannot be trusted: it ${what}`)
    this.name = 'SignerFaultError'
  }
}
