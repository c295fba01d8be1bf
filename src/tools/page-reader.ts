import { FairConcurrencyLimit } from '../fairness/fair-concurrency-limit.ts'
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

const workerModule = new URL('./page-worker.ts', import.meta.url)

/**
 * Starts no process until the first page arrives. `module` is the main module of the children; tests replace it to attack from
 * inside.
 */
export function createPageReader(limits: PageReaderLimits = pageReaderLimits, module: URL = workerModule): PageReader {
  return new PageProcesses(limits, module)
}

/**
 * Parses pages in sandboxed child processes (`PageProcess`), each page in one of its own: a page may take over its parser, and must not
 * answer for the page of another customer. Places without a page have a started, unused process, so that a page seldom waits for a
 * start. One account may use all processes while no other account needs one: another account then waits for at most one page.
 */
class PageProcesses implements PageReader {
  readonly #limits: PageReaderLimits
  readonly #module: URL
  readonly #processLimit: FairConcurrencyLimit
  readonly #unused = new Set<PageProcess>()
  readonly #all = new Set<PageProcess>()
  readonly #closed = new AbortController()

  constructor(limits: PageReaderLimits, module: URL) {
    this.#limits = limits
    this.#module = module
    const { processesMax, waitingMax } = limits
    this.#processLimit = new FairConcurrencyLimit({
      concurrentMax: processesMax,
      accountConcurrentMin: processesMax,
      waitingMax,
    })
  }

  async read(question: ReadQuestion, signal: AbortSignal, account: string): Promise<ReadPage> {
    const stopped = AbortSignal.any([signal, this.#closed.signal])
    const turn = await this.#processLimit.enter(account, stopped)
    if (turn === undefined) {
      stopped.throwIfAborted()
      throw new UnreadablePageError()
    }
    const page = Promise.withResolvers<ReadPage>()
    signal.addEventListener('abort', () => page.reject(signal.reason), { once: true })
    this.#read(question, turn, stopped).then(page.resolve, page.reject)
    return page.promise
  }

  async close(): Promise<void> {
    this.#closed.abort(new UnreadablePageError())
    await Promise.all(
      [...this.#all].map((child) => {
        child.kill()
        return child.exited
      }),
    )
  }

  /** The turn lasts until the process has exited, even if the caller no longer waits. */
  async #read(question: ReadQuestion, turn: Disposable, stopped: AbortSignal): Promise<ReadPage> {
    using _turn = turn
    // It may have aborted after the turn was granted.
    stopped.throwIfAborted()
    const child = [...this.#unused].find(({ isUsable }) => isUsable) ?? this.#start()
    this.#unused.delete(child)
    const answer = await child.ask(question)
    await child.exited
    this.#startUnused()
    if (answer === undefined || !('page' in answer)) throw new UnreadablePageError(answer?.problem)
    return answer.page
  }

  /** Fills the free places. Only after a page: an installation that reads none runs no process, and one that cannot start is not repeated. */
  #startUnused(): void {
    try {
      while (this.#all.size < this.#limits.processesMax && !this.#closed.signal.aborted) this.#unused.add(this.#start())
    } catch {
      // The next page tries again, and reports the error.
    }
  }

  #start(): PageProcess {
    const child = startProcess(this.#module, this.#limits)
    this.#all.add(child)
    void child.exited.then(() => {
      this.#all.delete(child)
      this.#unused.delete(child)
    })
    return child
  }
}

function startProcess(module: URL, limits: PageProcessLimits): PageProcess {
  try {
    return new PageProcess(module, limits)
  } catch (error) {
    throw new UnreadablePageError((error as Error).message)
  }
}

export class UnreadablePageError extends FetchFailedError {
  constructor(cause?: string) {
    super('The page could not be read.', cause === undefined ? undefined : { cause })
  }
}
