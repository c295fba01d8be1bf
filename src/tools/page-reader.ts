import { FairQueue } from '../fairness/fair-queue.ts'
import { Shares } from '../fairness/shares.ts'
import type { ReadPage, ReadQuestion } from './page-channel.ts'
import { PageProcess, type PageProcessLimits } from './page-process.ts'
import { FetchFailedError } from './web-fetch.ts'

export type PageReader = {
  /** Takes ownership of the body: do not use it afterwards. Accounts are served in turn. */
  read(question: ReadQuestion, signal: AbortSignal, account: string): Promise<ReadPage>
  close(): Promise<void>
}

export type PageReaderLimits = PageProcessLimits & {
  readonly processesMax: number
  readonly waitingMax: number
}

export const pageReaderLimits: PageReaderLimits = {
  processesMax: 2,
  waitingMax: 64,
  startMsMax: 60_000,
  readMsMax: 5_000,
  heapMegabytesMax: 256,
  buffersBytesMax: 256 * 1024 * 1024,
}

const waitingPerAccountMin = 4
const workerModule = new URL('./page-worker.ts', import.meta.url)

type Job = {
  readonly account: string
  readonly question: ReadQuestion
  readonly resolve: (page: ReadPage) => void
  readonly reject: (error: unknown) => void
}

/**
 * Starts no process until the first page arrives. `module` is the main module of the children; tests replace it to attack from
 * inside.
 */
export function createPageReader(limits: PageReaderLimits = pageReaderLimits, module: URL = workerModule): PageReader {
  return new PageProcesses(limits, module)
}

/**
 * Parses pages in sandboxed child processes (`PageProcess`). A page that exceeds its time or memory costs only its own process; the
 * next page gets a new one. One account may use all processes while no other account needs one: another account then waits for at
 * most one page.
 */
class PageProcesses implements PageReader {
  readonly #limits: PageReaderLimits
  readonly #module: URL
  readonly #waiting = new FairQueue<Job>(1)
  readonly #places: Shares
  readonly #idle = new Set<PageProcess>()
  readonly #all = new Set<PageProcess>()
  #closed = false

  constructor(limits: PageReaderLimits, module: URL) {
    this.#limits = limits
    this.#module = module
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
    await Promise.all(
      [...this.#all].map((child) => {
        child.kill()
        return child.exited
      }),
    )
  }

  #next(): void {
    if (this.#closed || this.#waiting.length === 0) return
    const idle = [...this.#idle].find(({ isUsable }) => isUsable)
    if (idle === undefined && this.#all.size >= this.#limits.processesMax) return
    const job = this.#waiting.peek()!
    this.#waiting.served(1, true)
    this.#places.release(job.account)
    const child = idle ?? this.#start()
    this.#idle.delete(child)
    void this.#run(child, job)
  }

  #start(): PageProcess {
    const child = new PageProcess(this.#module, this.#limits)
    this.#all.add(child)
    void child.exited.then(() => {
      this.#all.delete(child)
      this.#idle.delete(child)
      this.#next()
    })
    return child
  }

  async #run(child: PageProcess, job: Job): Promise<void> {
    const answer = await child.ask(job.question)
    if (answer !== undefined && 'page' in answer) job.resolve(answer.page)
    else job.reject(new UnreadablePageError(answer?.problem))
    if (!child.isUsable) return
    this.#idle.add(child)
    this.#next()
  }
}

export class UnreadablePageError extends FetchFailedError {
  constructor(cause?: string) {
    super('The page could not be read.', cause === undefined ? undefined : { cause })
  }
}
