import { Worker } from 'node:worker_threads'
import { FairQueue } from '../fair-queue.ts'
import { Shares } from '../shares.ts'
import type { ReadAnswer, ReadPage, ReadQuestion } from './page-worker.ts'
import { FetchFailedError } from './web-fetch.ts'

export type PageReader = {
  /** The body is handed over: it is not to be used afterwards. Accounts are served in turn. */
  read(question: ReadQuestion, signal: AbortSignal, account: string): Promise<ReadPage>
  close(): Promise<void>
}

export type PageReaderLimits = {
  readonly threadsMax: number
  readonly waitingMax: number
  readonly readMsMax: number
  readonly heapMegabytesMax: number
  /** Memory beside the heap: what a PDF's streams unpack to. */
  readonly buffersBytesMax: number
}

export const pageReaderLimits: PageReaderLimits = {
  threadsMax: 2,
  waitingMax: 64,
  readMsMax: 5_000,
  heapMegabytesMax: 256,
  buffersBytesMax: 256 * 1024 * 1024,
}

const memoryLookMs = 50
const waitingPerAccountMin = 4
const workerFile = new URL('./page-worker.ts', import.meta.url)

type Job = {
  readonly account: string
  readonly question: ReadQuestion
  readonly resolve: (page: ReadPage) => void
  readonly reject: (error: unknown) => void
}

/** Starts nothing yet: a thread comes with the first page. */
export function createPageReader(limits: PageReaderLimits = pageReaderLimits): PageReader {
  return new ReadingThreads(limits)
}

/**
 * Pages are parsed in threads of their own: a stranger's page decides how long that takes and how much memory it wants,
 * and one that goes too far costs its thread and nothing else. An account may use all threads while nobody else needs one: the next
 * account waits for one page at most.
 */
class ReadingThreads implements PageReader {
  readonly #limits: PageReaderLimits
  readonly #waiting = new FairQueue<Job>(1)
  readonly #places: Shares
  readonly #idle: Worker[] = []
  readonly #all = new Set<Worker>()
  #closed = false

  constructor(limits: PageReaderLimits) {
    this.#limits = limits
    this.#places = new Shares({
      what: 'pages that wait to be read',
      capacity: limits.waitingMax,
      floor: waitingPerAccountMin,
    })
  }

  read(question: ReadQuestion, signal: AbortSignal, account: string): Promise<ReadPage> {
    signal.throwIfAborted()
    if (this.#closed || this.#places.refusal(account) !== undefined) throw new UnreadablePageError()
    return new Promise((resolve, reject) => {
      const job = { account, question, resolve, reject }
      const leave = () => {
        if (this.#waiting.remove(account, job)) this.#places.release(account)
        reject(signal.reason)
      }
      signal.addEventListener('abort', leave, { once: true })
      this.#places.acquire(account)
      this.#waiting.push(account, job)
      this.#next()
    })
  }

  async close(): Promise<void> {
    this.#closed = true
    for (const job of this.#waiting.drain()) job.reject(new UnreadablePageError())
    await Promise.all([...this.#all].map((worker) => worker.terminate()))
  }

  #next(): void {
    if (this.#closed || this.#waiting.length === 0) return
    if (this.#idle.length === 0 && this.#all.size >= this.#limits.threadsMax) return
    const job = this.#waiting.peek()!
    this.#waiting.served(1, true)
    this.#places.release(job.account)
    this.#run(this.#idle.pop() ?? this.#start(), job)
  }

  #start(): Worker {
    const worker = new Worker(workerFile, {
      // A stranger's page gets to see nothing of ours, should it ever get to see anything.
      env: {},
      resourceLimits: {
        maxOldGenerationSizeMb: this.#limits.heapMegabytesMax,
        maxYoungGenerationSizeMb: 32,
        stackSizeMb: 4,
      },
    })
    this.#all.add(worker)
    worker.on('error', () => {})
    worker.on('exit', () => {
      this.#all.delete(worker)
      const place = this.#idle.indexOf(worker)
      if (place !== -1) this.#idle.splice(place, 1)
      this.#next()
    })
    return worker
  }

  #run(worker: Worker, job: Job): void {
    const stop = () => void worker.terminate()
    const late = setTimeout(stop, this.#limits.readMsMax)
    const look = setInterval(() => this.#lookAt(worker, stop), memoryLookMs)
    const settle = (answer: ReadAnswer | undefined) => {
      clearTimeout(late)
      clearInterval(look)
      worker.off('message', settle)
      worker.off('exit', onExit)
      worker.unref()
      if (answer !== undefined && 'page' in answer) job.resolve(answer.page)
      else job.reject(new UnreadablePageError(answer?.problem))
    }
    const onExit = () => settle(undefined)
    worker.on('message', settle)
    worker.on('exit', onExit)
    worker.once('message', () => {
      this.#idle.push(worker)
      this.#next()
    })
    worker.ref()
    worker.postMessage(job.question, transferable(job.question.body))
  }

  /** The heap has a limit of its own; the buffers beside it have none but this. */
  async #lookAt(worker: Worker, stop: () => void): Promise<void> {
    const memory = await worker.getHeapStatistics().catch(() => undefined)
    if (memory !== undefined && memory.external_memory > this.#limits.buffersBytesMax) stop()
  }
}

/** Handed over instead of copied, where the whole buffer is the page's own. */
function transferable({ buffer, byteLength }: Uint8Array): ArrayBuffer[] {
  return buffer instanceof ArrayBuffer && buffer.byteLength === byteLength && byteLength > 0 ? [buffer] : []
}

export class UnreadablePageError extends FetchFailedError {
  constructor(cause?: string) {
    super('The page could not be read.', cause === undefined ? undefined : { cause })
  }
}
