import { Worker } from 'node:worker_threads'
import { ServiceError } from '../errors.ts'
import { FairQueue } from '../fairness/fair-queue.ts'
import { Shares } from '../fairness/shares.ts'
import { TextSlicer } from './text-slicer.ts'
import type { CountAnswer, CountQuestion } from './token-worker.ts'

export type CountOptions = {
  /** Accounts are served in turn. */
  readonly account: string
  /** Stops counting when it aborts. */
  readonly signal?: AbortSignal | undefined
  /** Counting stops above this number: the result is then some larger number, not the exact count. */
  readonly tokensMax?: number | undefined
}

/** Counts o200k tokens in a worker thread, off the event loop. */
export type TokenCounter = {
  /**
   * The tokens of all texts together. Exact except for runs without a break, whose pieces are counted separately.
   * @throws {OverloadedError} when the queue is full. @throws {ShareUsedUpError} when this account fills too much of it.
   */
  count(texts: readonly string[], options: CountOptions): Promise<number>
  /**
   * For text that is being charged. It precedes all unpaid work and is never refused: an overloaded queue cannot prevent a charge.
   * Accounts are served in turn.
   */
  countPaid(texts: readonly string[], account: string): Promise<number>
  /** For open requests. Never refused. It alternates with unpaid work, so that neither starves the other. Accounts are served in turn. */
  countOpen(texts: readonly string[], account: string): Promise<number>
  /** Loads the vocabulary in the background, so that the first count does not wait for it. */
  warm(): void
  close(): Promise<void>
}

type Job = {
  readonly queue: FairQueue<Job>
  readonly account: string
  readonly slicer: TextSlicer
  readonly tokensMax: number
  readonly resolve: (tokens: number) => void
  readonly reject: (error: unknown) => void
  tokens: number
  /** Slices that the thread is working on. */
  given: number
  isOver: boolean
}

/** A unit of work for the thread. */
type Slice = { readonly id: number; readonly job: Job; readonly texts: readonly string[]; attempts: number }

const jobsMax = 1_000
const jobsPerAccountMin = 16
const waitingCharactersMax = 64 * 1024 * 1024
const waitingPerAccountMax = 4 * 1024 * 1024
const attemptsMax = 2
const givenMax = 16
// Random words, Chinese and symbols take 3 to 5 µs per character, so a slice of them takes a few dozen milliseconds.
const sliceCharactersMax = 8 * 1024
/** One slice in progress and one queued in the thread. */
const givenCharactersMax = 2 * sliceCharactersMax

const workerFile = new URL('./token-worker.ts', import.meta.url)

/** Characters of the vocabulary's longest token. A text longer than `n` times this has more than `n` tokens. */
export const charactersPerTokenMax = 128

/** The same in UTF-8 bytes. */
export const bytesPerTokenMax = 128

/** An upper bound: a token stands for at least one byte. */
export function byteBound(texts: readonly string[]): number {
  return texts.reduce((bytes, text) => bytes + Buffer.byteLength(text), 0)
}

/** Starts no thread until the first count or `warm`. */
export function createTokenCounter(file: URL = workerFile): TokenCounter {
  return new CountingThread(file)
}

/**
 * Counts in one worker thread: the tokenizer is fast, but a long text would block every stream of the process. The thread gets one
 * slice at a time, so that this class controls the order: paid work waits for at most two slices, accounts take turns, and aborted
 * work is not counted. The thread keeps the process alive only while a caller waits for a count.
 */
class CountingThread implements TokenCounter {
  readonly #file: URL
  readonly #paid = new FairQueue<Job>(sliceCharactersMax)
  readonly #open = new FairQueue<Job>(sliceCharactersMax)
  readonly #unpaid = new FairQueue<Job>(sliceCharactersMax)
  /**
   * Slices that a thread had when it died. One of them may have killed it, so each runs alone: a bad slice must not fail the
   * others.
   */
  readonly #suspects: Slice[] = []
  readonly #given = new Map<number, Slice>()
  readonly #jobs = new Shares({ what: 'prompts that wait to be counted', capacity: jobsMax, floor: jobsPerAccountMin })
  readonly #characters = new Shares({
    what: 'characters of prompts that wait to be counted',
    capacity: waitingCharactersMax,
    accountMax: waitingPerAccountMax,
  })
  #worker: Worker | undefined
  #nextId = 0
  #givenCharacters = 0
  #isOpensTurn = true
  #isAlone = false
  #closed = false

  constructor(file: URL) {
    this.#file = file
  }

  async count(texts: readonly string[], options: CountOptions): Promise<number> {
    const { account } = options
    const characters = lengthOf(texts)
    options.signal?.throwIfAborted()
    this.#jobs.acquire(account)
    try {
      this.#characters.acquire(account, characters)
      try {
        return await this.#add(this.#unpaid, texts, options)
      } finally {
        this.#characters.release(account, characters)
      }
    } finally {
      this.#jobs.release(account)
    }
  }

  async countPaid(texts: readonly string[], account: string): Promise<number> {
    return this.#add(this.#paid, texts, { account })
  }

  async countOpen(texts: readonly string[], account: string): Promise<number> {
    return this.#add(this.#open, texts, { account })
  }

  warm(): void {
    if (!this.#closed) this.#worker ??= this.#start()
  }

  async close(): Promise<void> {
    this.#closed = true
    await this.#worker?.terminate()
  }

  async #add(queue: FairQueue<Job>, texts: readonly string[], options: CountOptions): Promise<number> {
    const { account, signal, tokensMax = Number.POSITIVE_INFINITY } = options
    const slicer = new TextSlicer(texts, sliceCharactersMax)
    if (slicer.next === undefined) return 0
    if (this.#closed) throw new TokenizerError('the counter is closed')
    const { promise, resolve, reject } = Promise.withResolvers<number>()
    const job: Job = { queue, account, slicer, tokensMax, resolve, reject, tokens: 0, given: 0, isOver: false }
    const leave = () => {
      this.#end(job)
      reject(signal?.reason)
    }
    signal?.addEventListener('abort', leave, { once: true })
    queue.push(account, job)
    this.#dispatch()
    return promise.finally(() => signal?.removeEventListener('abort', leave))
  }

  #start(): Worker {
    const worker = new Worker(this.#file)
    let problem = 'the worker stopped'
    worker.on('message', (answer: CountAnswer) => {
      const slice = this.#take(answer.id)
      if (slice !== undefined) this.#addTokens(slice.job, answer)
      this.#dispatch()
    })
    // 'exit' always follows 'error' and redistributes the work.
    worker.on('error', (error) => {
      problem = String(error)
    })
    worker.on('exit', () => {
      if (this.#worker === worker) this.#retryAfterCrash(problem)
    })
    worker.unref()
    return worker
  }

  /** Sends as many slices as fit next to those in progress. */
  #dispatch(): void {
    for (let slice = this.#nextSlice(); slice !== undefined; slice = this.#nextSlice()) this.#ask(slice)
    if (this.#given.size === 0) this.#worker?.unref()
  }

  #nextSlice(): Slice | undefined {
    if (this.#suspects.length > 0) {
      if (this.#given.size > 0) return undefined
      this.#isAlone = true
      return this.#suspects.shift()
    }
    const turns = this.#isOpensTurn ? [this.#open, this.#unpaid] : [this.#unpaid, this.#open]
    const queue = [this.#paid, ...turns].find(({ length }) => length > 0)
    const job = queue?.peek()
    const texts = job?.slicer.next
    if (queue === undefined || job === undefined || texts === undefined) return undefined
    const characters = lengthOf(texts)
    const fits = this.#given.size < givenMax && this.#givenCharacters + characters <= givenCharactersMax
    if (this.#given.size > 0 && (!fits || this.#isAlone)) return undefined
    this.#isAlone = false
    if (queue !== this.#paid) this.#isOpensTurn = queue === this.#unpaid
    job.slicer.advance()
    queue.served(job.account, characters, job.slicer.next === undefined)
    job.given += 1
    this.#nextId += 1
    return { id: this.#nextId, job, texts, attempts: 0 }
  }

  #ask(slice: Slice): void {
    slice.attempts += 1
    this.#given.set(slice.id, slice)
    this.#givenCharacters += lengthOf(slice.texts)
    this.#worker ??= this.#start()
    this.#worker.ref()
    this.#worker.postMessage({ id: slice.id, texts: slice.texts } satisfies CountQuestion)
  }

  #addTokens(job: Job, { tokens, problem }: CountAnswer): void {
    job.given -= 1
    if (tokens === undefined) job.reject(new TokenizerError(problem))
    job.tokens += tokens ?? 0
    const isCounted = job.slicer.next === undefined && job.given === 0
    if (!isCounted && tokens !== undefined && job.tokens <= job.tokensMax) return
    this.#end(job)
    job.resolve(job.tokens)
  }

  /** Stops counting the job. */
  #end(job: Job): void {
    job.isOver = true
    job.queue.remove(job.account, job)
  }

  #take(id: number): Slice | undefined {
    const slice = this.#given.get(id)
    if (slice === undefined) return undefined
    this.#given.delete(id)
    this.#givenCharacters -= lengthOf(slice.texts)
    return slice
  }

  /** The thread died, perhaps because of one of its slices. Each slice gets one more attempt, alone. */
  #retryAfterCrash(problem: string): void {
    this.#worker = undefined
    const given = [...this.#given.keys()].map((id) => this.#take(id)!).filter(({ job }) => !job.isOver)
    const lost = given.filter(({ attempts }) => attempts >= attemptsMax).map(({ job }) => job)
    if (this.#closed) {
      lost.push(...[...given, ...this.#suspects.splice(0)].map(({ job }) => job))
      for (const queue of [this.#paid, this.#open, this.#unpaid]) lost.push(...queue.drain())
    }
    for (const job of lost) {
      this.#end(job)
      job.reject(new TokenizerError(problem))
    }
    if (this.#closed) return
    this.#suspects.unshift(...given.filter(({ job }) => !job.isOver))
    this.#dispatch()
  }
}

function lengthOf(texts: readonly string[]): number {
  return texts.reduce((sum, text) => sum + text.length, 0)
}

export class TokenizerError extends ServiceError {
  constructor(problem: string | undefined) {
    super('internal_error', 'The tokens of this request could not be counted.', { cause: problem })
  }
}
