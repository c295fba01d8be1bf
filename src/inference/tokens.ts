import { Worker } from 'node:worker_threads'
import { ServiceError } from '../errors.ts'
import type { CountAnswer, CountQuestion } from './token-worker.ts'

/** Counts o200k tokens off the event loop. */
export type TokenCounter = {
  /** The tokens of all texts together. Exact but for runs without a break, whose pieces are counted apart. */
  count(texts: readonly string[]): Promise<number>
  /** Loads the vocabulary in the background, so that the first count need not wait for it. */
  warm(): void
  close(): Promise<void>
}

type Job = {
  readonly texts: readonly string[]
  readonly characters: number
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
 * One worker thread: the tokenizer is fast, but a long text takes long enough to hold up every stream of the process.
 * The thread keeps the process alive only while somebody waits for a count.
 */
class CountingThread implements TokenCounter {
  readonly #file: URL
  readonly #jobs = new Map<number, Job>()
  #worker: Worker | undefined
  #nextId = 0
  #waitingCharacters = 0
  #closed = false

  constructor(file: URL) {
    this.#file = file
  }

  async count(texts: readonly string[]): Promise<number> {
    const characters = texts.reduce((sum, text) => sum + text.length, 0)
    if (characters === 0) return 0
    if (this.#closed) throw new TokenizerError('the counter is closed')
    if (this.#jobs.size >= jobsMax || this.#waitingCharacters + characters > waitingCharactersMax) {
      throw new TokenQueueFullError()
    }
    const { promise, resolve, reject } = Promise.withResolvers<number>()
    const job = { texts, characters, resolve, reject, attempts: 0 }
    const id = this.#nextId
    this.#nextId += 1
    this.#jobs.set(id, job)
    this.#waitingCharacters += characters
    this.#ask(id, job)
    return promise
  }

  warm(): void {
    if (!this.#closed) this.#worker ??= this.#start()
  }

  async close(): Promise<void> {
    this.#closed = true
    await this.#worker?.terminate()
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

  #ask(id: number, job: Job): void {
    job.attempts += 1
    this.#worker ??= this.#start()
    this.#worker.ref()
    this.#worker.postMessage({ id, texts: job.texts } satisfies CountQuestion)
  }

  #settle(answer: CountAnswer): void {
    const job = this.#take(answer.id)
    if (answer.tokens === undefined) job?.reject(new TokenizerError(answer.problem))
    else job?.resolve(answer.tokens)
  }

  #take(id: number): Job | undefined {
    const job = this.#jobs.get(id)
    if (job === undefined) return undefined
    this.#jobs.delete(id)
    this.#waitingCharacters -= job.characters
    if (this.#jobs.size === 0) this.#worker?.unref()
    return job
  }

  /** The thread died, perhaps of one of these jobs: each gets one more chance, so a job that kills is not tried for ever. */
  #handOn(problem: string): void {
    this.#worker = undefined
    for (const [id, job] of [...this.#jobs]) {
      if (this.#closed || job.attempts >= attemptsMax) this.#take(id)?.reject(new TokenizerError(problem))
      else this.#ask(id, job)
    }
  }
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
