import type { Bill, Step } from '../billing/bill.ts'
import { searchesMax } from '../billing/quote.ts'
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
import type { AdmittedRequest } from './admit.ts'
import type { OwnCall } from './round-reader.ts'
import { Sources } from './sources.ts'
import { note, notes, pageResult, searchResult, type ToolResult } from './tool-results.ts'

export type ToolRunnerParts = {
  readonly holds: Holds
  readonly web: WebTools
  /** Unexpected failure of one of our tools. The model gets a generic failure; the operator gets the error. */
  readonly onToolFault: (error: unknown, admitted: AdmittedRequest) => void
}

export type ToolSignals = {
  /** Aborts when the answer is stopped: nothing more is begun. A search that a provider has runs on, and is charged. */
  readonly stopped: AbortSignal
  /** Aborts when the service stops the answer. */
  readonly halted: AbortSignal
}

/** A failed search is free and does not count as one of the three. This limits how often a failing provider is asked. */
const searchAttemptsMax = 6
const fetchesMax = 5
const urlCharactersMax = 2_000
/**
 * An answer that uses a result needs about this much: a sentence and a link. With less left, a result would be paid for and lost.
 */
const answerTokensMin = 64
/** The tokens that search results are expected to add to the next round, and the fewest that are worth the price. */
const resultTokensExpected = 2_500
export const resultTokensLeast = 1_000
/** The output that must be affordable when the whole of `max_tokens` is not. */
export const answerTokensLeast = 256
/** A model that keeps calling after a refusal must not fill the stream or the row with refused calls. */
const refusalsShownMax = 8

/** A parsed call of one of our tools. */
type ParsedToolCall =
  | { readonly kind: 'search'; readonly query: string }
  | { readonly kind: 'fetch'; readonly url: string }

type Performed = { readonly status: 'completed'; readonly results: number; readonly result: ToolResult }

/** Shows events to the client. A promise is backpressure, or waits for a client. */
type Show = (events: readonly ChatEvent[]) => Promise<void> | undefined

/** Why a call is not run: the model's text, and the client's reason when the request itself is the cause. */
type Refusal = { readonly result: ToolResult; readonly reason?: ToolRefusalReason }

/**
 * Runs the calls of our own tools for one request, within its budget of calls and money. Problems with a call become its result;
 * they never fail the request.
 */
export class ToolRunner {
  readonly sources: Sources
  readonly #parts: ToolRunnerParts
  readonly #admitted: AdmittedRequest
  readonly #bill: Bill
  readonly #signals: ToolSignals
  readonly #fence: string
  #searchAttempts = 0
  #fetches = 0
  #number = 0
  #refusalsShown = 0
  #moneySpent = false

  constructor(parts: ToolRunnerParts, admitted: AdmittedRequest, bill: Bill, signals: ToolSignals) {
    this.#parts = parts
    this.#admitted = admitted
    this.#bill = bill
    this.#signals = signals
    this.#fence = `=====${digits(admitted.requestId).slice(-16)}=====`
    this.sources = new Sources(admitted.chat.messages)
  }

  /** No more calls can run: the model must answer with what it has. */
  get closed(): boolean {
    const { offer } = this.#admitted
    const searchable = offer.has('web_search') && !this.#searchesSpent
    const fetchable = offer.has('web_fetch') && this.#fetches < fetchesMax
    return this.#moneySpent || this.#bill.tokensLeft < answerTokensMin || !(searchable || fetchable)
  }

  get #searchesSpent(): boolean {
    return this.#bill.searchCalls >= searchesMax || this.#searchAttempts >= searchAttemptsMax
  }

  /** Runs a call and shows its progress. `inputTokens` is the next round's input without this call. */
  async run(call: OwnCall, inputTokens: number, show: Show): Promise<ToolResult> {
    const toolCall = readToolCall(call)
    if (toolCall === undefined) return note(`The arguments of ${call.name} do not match its schema. Nothing was run.`)
    const refusal = await this.#refuse(toolCall, inputTokens)
    if (refusal !== undefined) {
      await this.#showRefusal(toolCall, refusal, show)
      return refusal.result
    }
    const about = this.#describe(toolCall)
    if (toolCall.kind === 'search') this.#searchAttempts += 1
    else this.#fetches += 1
    await show([{ type: 'activity', activity: { ...about, status: 'started' } }])
    const { watch } = this.#admitted
    const running = watch.begin('tool', about.type)
    const { status, results, result } = await this.#perform(toolCall).catch((error: unknown) => {
      watch.end(running, this.#signals.stopped.aborted ? 'cancelled' : 'failed')
      this.#signals.stopped.throwIfAborted()
      return { status: 'failed' as const, results: undefined, result: note(this.#explain(toolCall, error)) }
    })
    watch.end(running, status)
    this.#record(toolCall.kind, status, results ?? 0)
    this.#signals.stopped.throwIfAborted()
    await show([{ type: 'activity', activity: { ...about, status, results } }])
    return result
  }

  /** Extends the hold to the total that this step needs. False when the ledger refuses; then no further extension is tried. */
  async extend(step: Step): Promise<boolean> {
    const extended = await this.#tryExtend(step)
    if (!extended && this.#admitted.offer.has('web_search')) this.#moneySpent = true
    return extended
  }

  async #tryExtend(step: Step): Promise<boolean> {
    const total = this.#bill.extensionFor(step)
    if (total === zero) return true
    // Without search, the quote is the most that a request may cost.
    const { requestId, hold, searchMax } = this.#admitted
    if (total > searchMax || this.#moneySpent) return false
    const decision = await this.#parts.holds.extend({ requestId, payer: hold.payer, total }).catch((error: unknown) => {
      if (error instanceof ServiceError) return error.code
      throw error
    })
    if (decision === 'extended') this.#bill.extendTo(total)
    return decision === 'extended'
  }

  async #refuse(toolCall: ParsedToolCall, inputTokens: number): Promise<Refusal | undefined> {
    if (toolCall.kind === 'search' && this.#searchesSpent) return { result: notes.searchesSpent }
    if (toolCall.kind === 'fetch') {
      if (this.#fetches >= fetchesMax) return { result: notes.fetchesSpent }
      if (!this.sources.allows(toolCall.url)) return { result: notes.foreignUrl }
    }
    const contextLeft = this.#admitted.model.contextLength - inputTokens - resultTokensLeast
    if (Math.min(this.#bill.tokensLeft, contextLeft) < answerTokensMin) {
      return { result: notes.tokensSpent, reason: 'max_tokens_spent' }
    }
    if (toolCall.kind === 'fetch' || (await this.#affordsSearch(inputTokens))) return undefined
    return { result: notes.moneySpent, reason: 'budget_spent' }
  }

  /**
   * Reserves the money for a search and for the round that reads its results: a search must not be paid for when its results cannot
   * be read. When the whole of `max_tokens` is too expensive, a short answer is enough.
   */
  async #affordsSearch(inputTokens: number): Promise<boolean> {
    const { tokensLeft } = this.#bill
    const whole = { searches: 1, inputTokens: inputTokens + resultTokensExpected, outputTokens: tokensLeft }
    const least = {
      searches: 1,
      inputTokens: inputTokens + resultTokensLeast,
      outputTokens: Math.min(tokensLeft, answerTokensLeast),
    }
    return (await this.#tryExtend(whole)) || (await this.extend(least))
  }

  async #showRefusal(toolCall: ParsedToolCall, { reason }: Refusal, show: Show): Promise<void> {
    if (reason === undefined || this.#refusalsShown >= refusalsShownMax) return
    this.#refusalsShown += 1
    const about = this.#describe(toolCall)
    this.#record(toolCall.kind, reason, 0)
    await show([{ type: 'activity', activity: { ...about, status: 'failed', reason } }])
  }

  /** Numbers a call that the client sees. */
  #describe(toolCall: ParsedToolCall): Pick<ToolActivity, 'type' | 'call' | 'query' | 'url'> {
    this.#number += 1
    if (toolCall.kind === 'search') return { type: 'web_search', call: this.#number, query: toolCall.query }
    return { type: 'web_fetch', call: this.#number, url: toolCall.url }
  }

  async #perform(toolCall: ParsedToolCall): Promise<Performed> {
    const { stopped, halted } = this.#signals
    stopped.throwIfAborted()
    const { web } = this.#parts
    const { accountId } = this.#admitted.hold.payer
    if (toolCall.kind === 'search') {
      const results = await web.search!.search(toolCall.query, stopped, accountId, halted)
      for (const { url, title } of results) this.sources.add(url, title)
      return { status: 'completed', results: results.length, result: searchResult(results, this.#fence) }
    }
    const page = await web.fetch.fetch(toolCall.url, stopped, accountId)
    this.sources.add(toolCall.url, page.title)
    this.sources.add(page.url, page.title)
    return { status: 'completed', results: 1, result: pageResult(page, this.#fence) }
  }

  /** A completed search is charged, even when the rest of the request fails. A failed one is free. */
  #record(kind: ParsedToolCall['kind'], status: ToolCallRecord['status'], results: number): void {
    const before = this.#bill.searchCost
    if (status === 'completed' && kind === 'search') this.#bill.addSearch()
    if (status === 'completed' && kind === 'fetch') this.#bill.addFetch()
    const { requestId, hold } = this.#admitted
    this.#parts.holds.recordToolCall({
      requestId,
      partition: hold.payer.partition,
      number: this.#number,
      kind,
      status,
      cost: fromAtomic(this.#bill.searchCost - before),
      results,
    })
  }

  #explain(toolCall: ParsedToolCall, error: unknown): string {
    if (error instanceof SearchFailedError || error instanceof FetchFailedError) return error.message
    this.#parts.onToolFault(error, this.#admitted)
    return toolCall.kind === 'search' ? 'The search failed.' : 'The page could not be read.'
  }
}

/** Keeps only the known arguments: anything else that the model writes into a call would be shown to the client as free output. */
function readToolCall({ name, arguments: text }: OwnCall): ParsedToolCall | undefined {
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
