import type { Step, Tab } from '../billing/tab.ts'
import { ServiceError } from '../errors.ts'
import type { ChatEvent, ToolActivity } from '../inference/chat-events.ts'
import { cutText } from '../inference/parameter.ts'
import type { Holds } from '../ledger/holds.ts'
import { digits } from '../ledger/request-id.ts'
import { fromAtomic, zero } from '../money/usdc.ts'
import { FetchFailedError } from '../tools/web-fetch.ts'
import { SearchFailedError } from '../tools/web-search.ts'
import type { WebTools } from '../tools/web-tools.ts'
import type { Order } from './admit.ts'
import type { OwnCall } from './round-reader.ts'
import { Sources } from './sources.ts'
import { note, notes, pageResult, searchResult, type ToolResult } from './tool-results.ts'

export type DeskParts = {
  readonly holds: Holds
  readonly web: WebTools
  /** One of our tools broke in a way of its own: the model is told that it failed, the operator why. */
  readonly onToolFault: (error: unknown, order: Order) => void
}

const searchesMax = 3
const fetchesMax = 5
const toolMsMax = 60_000
const wantedCharactersMax = 2_000
/** A guess at what the results of a search add to the next round; what they truly are is known when they have come. */
const searchTokensExpected = 2_500

/** What a model may ask for. */
type Errand = { readonly kind: 'search'; readonly query: string } | { readonly kind: 'fetch'; readonly url: string }

type Performed = { readonly status: 'completed'; readonly results: number; readonly result: ToolResult }

/**
 * Runs the calls of our own tools for one request, within its budget of calls and of money. Whatever is wrong with a call is
 * told to the model as its result and is no error of the request.
 */
export class ToolDesk {
  readonly sources: Sources
  readonly #parts: DeskParts
  readonly #order: Order
  readonly #tab: Tab
  readonly #gone: AbortSignal
  readonly #fence: string
  #searches = 0
  #fetches = 0
  #number = 0
  #moneySpent = false

  constructor(parts: DeskParts, order: Order, tab: Tab, gone: AbortSignal) {
    this.#parts = parts
    this.#order = order
    this.#tab = tab
    this.#gone = gone
    this.#fence = `=====${digits(order.requestId).slice(-16)}=====`
    this.sources = new Sources(order.chat.messages)
  }

  /** Nothing more can be run: the model has to answer with what it has. */
  get closed(): boolean {
    const { offer } = this.#order
    const searchable = offer.has('web_search') && this.#searches < searchesMax
    const fetchable = offer.has('web_fetch') && this.#fetches < fetchesMax
    return this.#moneySpent || !(searchable || fetchable)
  }

  /** Runs a call; yields what the client is told meanwhile. `inputTokens` is what the next round has to read without it. */
  async *run(call: OwnCall, inputTokens: number): AsyncGenerator<readonly ChatEvent[], ToolResult, undefined> {
    const errand = readErrand(call)
    if (errand === undefined) return note(`The arguments of ${call.name} are not as its schema says. Nothing was run.`)
    const refusal = await this.#refuse(errand, inputTokens)
    if (refusal !== undefined) return refusal
    this.#number += 1
    if (errand.kind === 'search') this.#searches += 1
    else this.#fetches += 1
    const about: Pick<ToolActivity, 'type' | 'call' | 'query' | 'url'> = {
      type: errand.kind === 'search' ? 'web_search' : 'web_fetch',
      call: this.#number,
      ...(errand.kind === 'search' ? { query: errand.query } : { url: errand.url }),
    }
    yield [{ type: 'activity', activity: { ...about, status: 'started' } }]
    const { watch } = this.#order
    const running = watch.begin('tool', about.type)
    const { status, results, result } = await this.#perform(errand).catch((error: unknown) => {
      watch.end(running, this.#gone.aborted ? 'cancelled' : 'failed')
      this.#gone.throwIfAborted()
      return { status: 'failed' as const, results: undefined, result: note(this.#explain(errand, error)) }
    })
    watch.end(running, status)
    this.#record(errand.kind, status, results ?? 0)
    yield [{ type: 'activity', activity: { ...about, status, results } }]
    return result
  }

  /** Lets the request cost so much more than its quote, all told; false when the ledger will not. */
  async extend(step: Step): Promise<boolean> {
    const total = this.#tab.extensionFor(step)
    if (total === zero) return true
    // Without search the quote is the most that a request costs, whatever it reads.
    if (!this.#order.offer.has('web_search') || this.#moneySpent) return false
    const { requestId, hold } = this.#order
    const decision = await this.#parts.holds.extend({ requestId, payer: hold.payer, total }).catch((error: unknown) => {
      if (error instanceof ServiceError) return error.code
      throw error
    })
    if (decision === 'extended') this.#tab.extendTo(total)
    else this.#moneySpent = true
    return decision === 'extended'
  }

  async #refuse(errand: Errand, inputTokens: number): Promise<ToolResult | undefined> {
    if (errand.kind === 'fetch') {
      if (this.#fetches >= fetchesMax) return notes.fetchesSpent
      return this.sources.allows(errand.url) ? undefined : notes.foreignUrl
    }
    if (this.#searches >= searchesMax) return notes.searchesSpent
    // The search and the round that reads its results: who pays for the one shall be able to pay for the other.
    const affordable = await this.extend({
      searches: 1,
      inputTokens: inputTokens + searchTokensExpected,
      outputTokens: this.#tab.tokensLeft,
    })
    return affordable ? undefined : notes.moneySpent
  }

  async #perform(errand: Errand): Promise<Performed> {
    using deadline = startDeadline(this.#gone)
    if (errand.kind === 'search') {
      const results = await deadline.during(this.#parts.web.search!.search(errand.query, deadline.signal))
      for (const { url, title } of results) this.sources.add(url, title)
      return { status: 'completed', results: results.length, result: searchResult(results, this.#fence) }
    }
    const page = await deadline.during(this.#parts.web.fetch.fetch(errand.url, deadline.signal))
    this.sources.add(errand.url, page.title)
    this.sources.add(page.url, page.title)
    return { status: 'completed', results: 1, result: pageResult(page, this.#fence) }
  }

  /** A search that ran is paid for, whatever becomes of the rest of the request; a failed one is not. */
  #record(kind: Errand['kind'], status: 'completed' | 'failed', results: number): void {
    const before = this.#tab.searchCost
    if (status === 'completed' && kind === 'search') this.#tab.addSearch()
    if (status === 'completed' && kind === 'fetch') this.#tab.addFetch()
    const { requestId, hold } = this.#order
    this.#parts.holds.recordToolCall({
      requestId,
      partition: hold.payer.partition,
      number: this.#number,
      kind,
      status,
      cost: fromAtomic(this.#tab.searchCost - before),
      results,
    })
  }

  #explain(errand: Errand, error: unknown): string {
    if (error instanceof SearchFailedError || error instanceof FetchFailedError) return error.message
    this.#parts.onToolFault(error, this.#order)
    return errand.kind === 'search' ? 'The search failed.' : 'The page could not be read.'
  }
}

function readErrand({ name, arguments: text }: OwnCall): Errand | undefined {
  try {
    const { query, url } = JSON.parse(text) as { readonly query?: unknown; readonly url?: unknown }
    const wanted = cutText(String(name === 'web_search' ? query : url).trim(), wantedCharactersMax)
    if (name === 'web_search' && typeof query === 'string' && wanted !== '') return { kind: 'search', query: wanted }
    if (name === 'web_fetch' && typeof url === 'string') return { kind: 'fetch', url: wanted }
  } catch {
    // Not JSON, or null.
  }
  return undefined
}

type Deadline = Disposable & {
  readonly signal: AbortSignal
  /** Waits for a tool, but for no longer, even where it does not mind its signal. */
  during<Result>(work: Promise<Result>): Promise<Result>
}

/** Aborts with the client, or when a tool takes longer than anybody waits. */
function startDeadline(gone: AbortSignal): Deadline {
  const controller = new AbortController()
  const over = Promise.withResolvers<never>()
  over.promise.catch(() => {})
  const stop = (reason: unknown) => {
    controller.abort(reason)
    over.reject(reason)
  }
  const leave = () => stop(gone.reason)
  const timer = setTimeout(() => stop(new Error('the tool took too long')), toolMsMax)
  if (gone.aborted) leave()
  else gone.addEventListener('abort', leave, { once: true })
  return {
    signal: controller.signal,
    during: (work) => Promise.race([work, over.promise]),
    [Symbol.dispose]() {
      clearTimeout(timer)
      gone.removeEventListener('abort', leave)
    },
  }
}
