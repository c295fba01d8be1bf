import { searchesMax } from '../billing/quote.ts'
import type { Step, Tab } from '../billing/tab.ts'
import { ServiceError } from '../errors.ts'
import type { ChatEvent, ToolActivity, ToolRefusalReason } from '../inference/chat-events.ts'
import { cutText } from '../inference/parameter.ts'
import type { ToolCallRecord } from '../ledger/hold-calls.ts'
import type { Holds } from '../ledger/holds.ts'
import { digits } from '../ledger/request-id.ts'
import { fromAtomic, zero } from '../money/usdc.ts'
import { FetchFailedError } from '../tools/web-fetch.ts'
import { queryCharactersMax, SearchFailedError } from '../tools/web-search.ts'
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

/** A failed search is free and does not use up one of the three; this bounds how often a failing provider is asked. */
const searchAttemptsMax = 6
const fetchesMax = 5
const toolMsMax = 60_000
const urlCharactersMax = 2_000
/** An answer that uses a result needs about this much: a sentence and a link. With less left, a result would be paid for and lost. */
const answerTokensMin = 64
/** What the results of a search are expected to add to the next round, and the least of them that is worth its price. */
const resultTokensExpected = 2_500
export const resultTokensLeast = 1_000
/** The least that must be affordable for the answer when the whole of `max_tokens` is not. */
export const answerTokensLeast = 256
/** A model that keeps calling after a refusal must not fill the stream or the row with refused calls. */
const refusalsShownMax = 8

/** What a model may ask for. */
type Errand = { readonly kind: 'search'; readonly query: string } | { readonly kind: 'fetch'; readonly url: string }

type Performed = { readonly status: 'completed'; readonly results: number; readonly result: ToolResult }

/** Why a call is not run: what the model reads, and what the caller is told where the request itself is the reason. */
type Refusal = { readonly result: ToolResult; readonly reason?: ToolRefusalReason }

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
  #searchAttempts = 0
  #fetches = 0
  #number = 0
  #refusalsShown = 0
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
    const searchable = offer.has('web_search') && !this.#searchesSpent
    const fetchable = offer.has('web_fetch') && this.#fetches < fetchesMax
    return this.#moneySpent || this.#tab.tokensLeft < answerTokensMin || !(searchable || fetchable)
  }

  get #searchesSpent(): boolean {
    return this.#tab.searchCalls >= searchesMax || this.#searchAttempts >= searchAttemptsMax
  }

  /** Runs a call; yields what the client is told meanwhile. `inputTokens` is what the next round has to read without it. */
  async *run(call: OwnCall, inputTokens: number): AsyncGenerator<readonly ChatEvent[], ToolResult, undefined> {
    const errand = readErrand(call)
    if (errand === undefined) return note(`The arguments of ${call.name} are not as its schema says. Nothing was run.`)
    const refusal = await this.#refuse(errand, inputTokens)
    if (refusal !== undefined) {
      yield* this.#showRefusal(errand, refusal)
      return refusal.result
    }
    const about = this.#describe(errand)
    if (errand.kind === 'search') this.#searchAttempts += 1
    else this.#fetches += 1
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

  /** Lets the request cost so much more than its quote, all told; false when the ledger will not, and nothing more is asked for then. */
  async extend(step: Step): Promise<boolean> {
    const extended = await this.#tryExtend(step)
    if (!extended && this.#order.offer.has('web_search')) this.#moneySpent = true
    return extended
  }

  async #tryExtend(step: Step): Promise<boolean> {
    const total = this.#tab.extensionFor(step)
    if (total === zero) return true
    // Without search the quote is the most that a request costs, whatever it reads.
    const { requestId, hold, searchMax } = this.#order
    if (total > searchMax || this.#moneySpent) return false
    const decision = await this.#parts.holds.extend({ requestId, payer: hold.payer, total }).catch((error: unknown) => {
      if (error instanceof ServiceError) return error.code
      throw error
    })
    if (decision === 'extended') this.#tab.extendTo(total)
    return decision === 'extended'
  }

  async #refuse(errand: Errand, inputTokens: number): Promise<Refusal | undefined> {
    if (errand.kind === 'search' && this.#searchesSpent) return { result: notes.searchesSpent }
    if (errand.kind === 'fetch') {
      if (this.#fetches >= fetchesMax) return { result: notes.fetchesSpent }
      if (!this.sources.allows(errand.url)) return { result: notes.foreignUrl }
    }
    const contextLeft = this.#order.model.contextLength - inputTokens - resultTokensLeast
    if (Math.min(this.#tab.tokensLeft, contextLeft) < answerTokensMin) {
      return { result: notes.tokensSpent, reason: 'max_tokens_spent' }
    }
    if (errand.kind === 'fetch' || (await this.#affordsSearch(inputTokens))) return undefined
    return { result: notes.moneySpent, reason: 'budget_spent' }
  }

  /**
   * Reserves the money of a search and of the round that reads its results, so that no search is paid for whose results cannot be.
   * Where the whole of `max_tokens` is too dear, a short answer is enough.
   */
  async #affordsSearch(inputTokens: number): Promise<boolean> {
    const { tokensLeft } = this.#tab
    const whole = { searches: 1, inputTokens: inputTokens + resultTokensExpected, outputTokens: tokensLeft }
    const least = {
      searches: 1,
      inputTokens: inputTokens + resultTokensLeast,
      outputTokens: Math.min(tokensLeft, answerTokensLeast),
    }
    return (await this.#tryExtend(whole)) || (await this.extend(least))
  }

  async *#showRefusal(errand: Errand, { reason }: Refusal): AsyncGenerator<readonly ChatEvent[], void, undefined> {
    if (reason === undefined || this.#refusalsShown >= refusalsShownMax) return
    this.#refusalsShown += 1
    const about = this.#describe(errand)
    this.#record(errand.kind, reason, 0)
    yield [{ type: 'activity', activity: { ...about, status: 'failed', reason } }]
  }

  /** Numbers a call that the client is shown. */
  #describe(errand: Errand): Pick<ToolActivity, 'type' | 'call' | 'query' | 'url'> {
    this.#number += 1
    if (errand.kind === 'search') return { type: 'web_search', call: this.#number, query: errand.query }
    return { type: 'web_fetch', call: this.#number, url: errand.url }
  }

  async #perform(errand: Errand): Promise<Performed> {
    using deadline = startDeadline(this.#gone)
    if (errand.kind === 'search') {
      const results = await deadline.during(this.#parts.web.search!.search(errand.query, deadline.signal))
      for (const { url, title } of results) this.sources.add(url, title)
      return { status: 'completed', results: results.length, result: searchResult(results, this.#fence) }
    }
    const page = await deadline.during(
      this.#parts.web.fetch.fetch(errand.url, deadline.signal, this.#order.hold.payer.accountId),
    )
    this.sources.add(errand.url, page.title)
    this.sources.add(page.url, page.title)
    return { status: 'completed', results: 1, result: pageResult(page, this.#fence) }
  }

  /** A search that ran is paid for, whatever becomes of the rest of the request; a failed one is not. */
  #record(kind: Errand['kind'], status: ToolCallRecord['status'], results: number): void {
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

/** What the client is shown is what is used of a call and no more: whatever else a model writes into it would be an answer. */
function readErrand({ name, arguments: text }: OwnCall): Errand | undefined {
  try {
    const { query, url } = JSON.parse(text) as { readonly query?: unknown; readonly url?: unknown }
    if (name === 'web_search' && typeof query === 'string' && query.trim() !== '') {
      return { kind: 'search', query: cutText(query.trim(), queryCharactersMax) }
    }
    if (name === 'web_fetch' && typeof url === 'string') {
      return { kind: 'fetch', url: cutText(url.trim(), urlCharactersMax).replace(/#.*$/s, '') }
    }
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
