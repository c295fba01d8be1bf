import { Worker } from 'node:worker_threads'
import { ServiceError } from '../errors.ts'
import type { CountAnswer, CountQuestion } from './token-worker.ts'

/** Counts o200k tokens off the event loop. */
export type TokenCounter = {
  /** The tokens of all texts together. Exact but for runs without a break, whose pieces are counted apart. */
  count(texts: readonly string[]): Promise<number>
  /** The same for what is paid for: before all that is not, and however much waits. Strangers cannot keep a charge from being made. */
  countPaid(texts: readonly string[]): Promise<number>
  /** The same for streams that go on, however much waits: in turn with what is not paid for, so that neither starves the other. */
  countOpen(texts: readonly string[]): Promise<number>
  /** Loads the vocabulary in the background, so that the first count need not wait for it. */
  warm(): void
  close(): Promise<void>
}

type Job = {
  readonly id: number
  readonly texts: readonly string[]
  readonly characters: number
  readonly resolve: (tokens: number) => void
  readonly reject: (error: Error) => void
  attempts: number
}

const jobsMax = 1_000
const waitingCharactersMax = 64 * 1024 * 1024
const attemptsMax = 2
const givenMax = 16
const givenCharactersMax = 64 * 1024
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
 * a few short jobs or one long one at a time, so that the order is ours. The thread keeps the process alive only while somebody
 * waits for a count.
 */
class CountingThread implements TokenCounter {
  readonly #file: URL
  readonly #paid: Job[] = []
  readonly #open: Job[] = []
  readonly #unpaid: Job[] = []
  /** A thread died while it had them, perhaps of one of them: each is given alone, so that the one does not take the others along. */
  readonly #suspects: Job[] = []
  readonly #given = new Map<number, Job>()
  #worker: Worker | undefined
  #nextId = 0
  #givenCharacters = 0
  #unpaidCharacters = 0
  #isOpensTurn = true
  #isAlone = false
  #closed = false

  constructor(file: URL) {
    this.#file = file
  }

  async count(texts: readonly string[]): Promise<number> {
    const characters = lengthOf(texts)
    const isFull = this.#unpaid.length >= jobsMax || this.#unpaidCharacters + characters > waitingCharactersMax
    if (isFull && characters > 0) throw new TokenQueueFullError()
    this.#unpaidCharacters += characters
    try {
      return await this.#add(this.#unpaid, texts, characters)
    } finally {
      this.#unpaidCharacters -= characters
    }
  }

  async countPaid(texts: readonly string[]): Promise<number> {
    return this.#add(this.#paid, texts, lengthOf(texts))
  }

  async countOpen(texts: readonly string[]): Promise<number> {
    return this.#add(this.#open, texts, lengthOf(texts))
  }

  warm(): void {
    if (!this.#closed) this.#worker ??= this.#start()
  }

  async close(): Promise<void> {
    this.#closed = true
    await this.#worker?.terminate()
  }

  async #add(queue: Job[], texts: readonly string[], characters: number): Promise<number> {
    if (characters === 0) return 0
    if (this.#closed) throw new TokenizerError('the counter is closed')
    const { promise, resolve, reject } = Promise.withResolvers<number>()
    queue.push({ id: this.#nextId, texts, characters, resolve, reject, attempts: 0 })
    this.#nextId += 1
    this.#give()
    return promise
  }

  #start(): Worker {
    const worker = new Worker(this.#file)
    let problem = 'the worker stopped'
    worker.on('message', (answer: CountAnswer) => this.#answer(answer))
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

  /** Gives the thread what fits beside what it has. */
  #give(): void {
    for (let queue = this.#nextQueue(); queue !== undefined; queue = this.#nextQueue()) {
      const [job] = queue as [Job]
      const isSuspect = queue === this.#suspects
      const fits = this.#given.size < givenMax && this.#givenCharacters + job.characters <= givenCharactersMax
      if (this.#given.size > 0 && (!fits || isSuspect || this.#isAlone)) return
      queue.shift()
      this.#isAlone = isSuspect
      if (queue === this.#open || queue === this.#unpaid) this.#isOpensTurn = queue === this.#unpaid
      this.#given.set(job.id, job)
      this.#givenCharacters += job.characters
      this.#ask(job)
    }
    if (this.#given.size === 0) this.#worker?.unref()
  }

  #nextQueue(): Job[] | undefined {
    const turns = this.#isOpensTurn ? [this.#open, this.#unpaid] : [this.#unpaid, this.#open]
    return [this.#suspects, this.#paid, ...turns].find(({ length }) => length > 0)
  }

  #ask(job: Job): void {
    job.attempts += 1
    this.#worker ??= this.#start()
    this.#worker.ref()
    this.#worker.postMessage({ id: job.id, texts: job.texts } satisfies CountQuestion)
  }

  #answer(answer: CountAnswer): void {
    const job = this.#take(answer.id)
    if (answer.tokens === undefined) job?.reject(new TokenizerError(answer.problem))
    else job?.resolve(answer.tokens)
    this.#give()
  }

  #take(id: number): Job | undefined {
    const job = this.#given.get(id)
    if (job === undefined) return undefined
    this.#given.delete(id)
    this.#givenCharacters -= job.characters
    return job
  }

  /** The thread died, perhaps of one of its jobs: each gets one more chance, alone. */
  #handOn(problem: string): void {
    this.#worker = undefined
    const given = [...this.#given.keys()].map((id) => this.#take(id)!)
    const queues = [this.#suspects, this.#paid, this.#open, this.#unpaid]
    const lost = this.#closed
      ? [...given, ...queues.flatMap((queue) => queue.splice(0))]
      : given.filter(({ attempts }) => attempts >= attemptsMax)
    for (const job of lost) job.reject(new TokenizerError(problem))
    if (this.#closed) return
    this.#suspects.unshift(...given.filter(({ attempts }) => attempts < attemptsMax))
    this.#give()
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
