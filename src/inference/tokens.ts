import { Worker } from 'node:worker_threads'
import { ServiceError } from '../errors.ts'
import type { CountAnswer, CountQuestion } from './token-worker.ts'

/** Counts o200k tokens off the event loop. */
export type TokenCounter = {
  /** The tokens of all texts together. Exact but for runs without a break, whose pieces are counted apart. */
  count(texts: readonly string[]): Promise<number>
  /** The same for what is paid for: before all that is not, and however much waits. Strangers cannot keep a charge from being made. */
  countPaid(texts: readonly string[]): Promise<number>
  /** Loads the vocabulary in the background, so that the first count need not wait for it. */
  warm(): void
  close(): Promise<void>
}

type Job = {
  readonly id: number
  readonly texts: readonly string[]
  readonly resolve: (tokens: number) => void
  readonly reject: (error: Error) => void
  attempts: number
}

const jobsMax = 1_000
const waitingCharactersMax = 64 * 1024 * 1024
const attemptsMax = 2
const retryAfterMs = 1_000

const workerFile = new URL('./token-worker.ts', import.meta.url)

/** The length of the vocabulary's longest token: a text of more characters than so many for each token has more tokens. */
export const charactersPerTokenMax = 128

/** Tokens never outnumber bytes: each stands for at least one. */
export function byteBound(texts: readonly string[]): number {
  return texts.reduce((bytes, text) => bytes + Buffer.byteLength(text), 0)
}

/** Starts nothing yet: the thread comes with the first count, or with `warm`. */
export function createTokenCounter(file: URL = workerFile): TokenCounter {
  return new CountingThread(file)
}

/**
 * One worker thread: the tokenizer is fast, but a long text takes long enough to hold up every stream of the process. It is given
 * one job at a time, so that the order is ours. The thread keeps the process alive only while somebody waits for a count.
 */
class CountingThread implements TokenCounter {
  readonly #file: URL
  readonly #paid: Job[] = []
  readonly #unpaid: Job[] = []
  #current: Job | undefined
  #worker: Worker | undefined
  #nextId = 0
  #unpaidCharacters = 0
  #closed = false

  constructor(file: URL) {
    this.#file = file
  }

  async count(texts: readonly string[]): Promise<number> {
    const characters = lengthOf(texts)
    if (characters === 0) return 0
    if (this.#unpaid.length >= jobsMax || this.#unpaidCharacters + characters > waitingCharactersMax) {
      throw new TokenQueueFullError()
    }
    this.#unpaidCharacters += characters
    try {
      return await this.#add(this.#unpaid, texts)
    } finally {
      this.#unpaidCharacters -= characters
    }
  }

  async countPaid(texts: readonly string[]): Promise<number> {
    return lengthOf(texts) === 0 ? 0 : this.#add(this.#paid, texts)
  }

  warm(): void {
    if (!this.#closed) this.#worker ??= this.#start()
  }

  async close(): Promise<void> {
    this.#closed = true
    await this.#worker?.terminate()
  }

  async #add(queue: Job[], texts: readonly string[]): Promise<number> {
    if (this.#closed) throw new TokenizerError('the counter is closed')
    const { promise, resolve, reject } = Promise.withResolvers<number>()
    queue.push({ id: this.#nextId, texts, resolve, reject, attempts: 0 })
    this.#nextId += 1
    this.#next()
    return promise
  }

  #start(): Worker {
    const worker = new Worker(this.#file)
    let problem = 'the worker stopped'
    worker.on('message', (answer: CountAnswer) => this.#settle(answer))
    // An 'error' is always followed by 'exit', which is where the work is handed on.
    worker.on('error', (error) => {
      problem = String(error)
    })
    worker.on('exit', () => {
      if (this.#worker === worker) this.#handOn(problem)
    })
    worker.unref()
    return worker
  }

  #next(): void {
    if (this.#current !== undefined) return
    this.#current = this.#paid.shift() ?? this.#unpaid.shift()
    if (this.#current === undefined) this.#worker?.unref()
    else this.#ask(this.#current)
  }

  #ask(job: Job): void {
    job.attempts += 1
    this.#worker ??= this.#start()
    this.#worker.ref()
    this.#worker.postMessage({ id: job.id, texts: job.texts } satisfies CountQuestion)
  }

  #settle(answer: CountAnswer): void {
    const job = this.#current
    if (job?.id !== answer.id) return
    this.#current = undefined
    if (answer.tokens === undefined) job.reject(new TokenizerError(answer.problem))
    else job.resolve(answer.tokens)
    this.#next()
  }

  /** The thread died, most likely of its job: that gets one more chance, so a job that kills is not tried for ever. */
  #handOn(problem: string): void {
    this.#worker = undefined
    if (this.#closed) {
      const waiting = [this.#current, ...this.#paid.splice(0), ...this.#unpaid.splice(0)]
      for (const job of waiting) job?.reject(new TokenizerError(problem))
      return
    }
    const job = this.#current
    if (job === undefined) return
    if (job.attempts < attemptsMax) {
      this.#ask(job)
      return
    }
    this.#current = undefined
    job.reject(new TokenizerError(problem))
    this.#next()
  }
}

function lengthOf(texts: readonly string[]): number {
  return texts.reduce((sum, text) => sum + text.length, 0)
}

/** More text waits to be counted than the worker can get through soon. */
export class TokenQueueFullError extends ServiceError {
  readonly code = 'overloaded'
  constructor() {
    super(`Too many long requests at once. Try again in ${retryAfterMs / 1000} second.`, { retryAfterMs })
  }
}

export class TokenizerError extends ServiceError {
  readonly code = 'internal_error'
  constructor(problem: string | undefined) {
    super('The tokens of this request could not be counted.', { cause: problem })
  }
}
