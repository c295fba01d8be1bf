import { hash } from 'node:crypto'
import type { Model, PriceList } from '../billing/price-list.ts'
import {
  boundQuotedInput,
  framedTokens,
  type InputText,
  leastInputCost,
  type Quote,
  quote,
  searchMax,
} from '../billing/quote.ts'
import type { Database } from '../db/database.ts'
import type { KeyOptions } from '../identity/key-options.ts'
import type { ChatRequest } from '../inference/chat-request.ts'
import type { CountOptions } from '../inference/tokens.ts'
import type { Hold, Payer } from '../ledger/hold-calls.ts'
import type { Holds } from '../ledger/holds.ts'
import { quoteHold } from '../ledger/quote-hold.ts'
import { formatRequestId, type RequestId } from '../ledger/request-id.ts'
import { fromAtomic, max, min, type Usdc, zero } from '../money/usdc.ts'
import type { RequestWatch } from '../observe/request-watch.ts'
import type { Failpoint } from '../process/failpoints.ts'
import {
  inputOf,
  type ModelRequest,
  maxOutputTokensMin,
  type RequestOptions,
  toModelRequest,
} from '../providers/model-request.ts'
import type { Router } from '../providers/router.ts'
import { ContextLengthExceededError } from '../providers/upstream-errors.ts'
import type { WebTools } from '../tools/web-tools.ts'
import { checkKeyCap } from './key-rules.ts'
import type { OpenRequests } from './open-requests.ts'
import { refusalError } from './refusal-error.ts'
import { type Offer, offerTools, toolDefinitions } from './tool-offer.ts'

/** The upstream request, and the most it may cost. */
export type QuotedRequest = {
  readonly model: Model
  /** The web tools that the model is offered. */
  readonly offer: Offer
  /** Options shared by the requests of all rounds. */
  readonly requestOptions: RequestOptions
  /** The first round's request. */
  readonly request: ModelRequest
  /** Short input is not counted. */
  readonly input: InputText
  readonly quote: Quote
  /** The most that web searches may add to the quote below the in-flight cap; 0 when the model cannot search. */
  readonly searchMax: Usdc
}

/** A request whose quote is held. */
export type AdmittedRequest = QuotedRequest & {
  readonly requestId: RequestId
  /** The account whose share of the providers it uses. */
  readonly sharesOf: string
  readonly chat: ChatRequest
  /** Atomic USDC per completed search. */
  readonly searchPerCall: bigint
  readonly hold: Hold
  /** Records how long each phase takes. */
  readonly watch: RequestWatch
}

export type AdmissionParts = {
  readonly web: WebTools
  readonly router: Pick<Router, 'refusal'>
  readonly holds: Pick<Holds, 'place'>
  /** Used instead of the balance to decide whether long input is worth counting: the money of a payment is not in the balance yet. */
  readonly refuseUnpaid?: Counting['refuseUnpaid']
  /** Read for the account's balance before long input is counted. */
  readonly database: Database
  readonly prices: PriceList
  readonly inFlightCap: Usdc
  /** Estimates when money in flight is released. */
  readonly openRequests: OpenRequests
  readonly countTokens: (texts: readonly string[], options: CountOptions) => Promise<number>
  readonly failpoint: Failpoint
}

/** A request before admission. */
export type Applicant = {
  readonly requestId: RequestId
  readonly payer: Payer
  /** The account whose shares of the token counter and of the providers it uses. */
  readonly sharesOf: string
  /** The options of the payer's key that the request was checked against. The hold fails when they have changed. */
  readonly options: KeyOptions
  readonly chat: ChatRequest
  readonly bodyHash: bigint | undefined
  readonly watch: RequestWatch
  /** Aborts when the client disconnects. */
  readonly signal: AbortSignal
}

/** Quotes a request and holds the quote. A refusal says what the customer can do about it. */
export async function admit(parts: AdmissionParts, applicant: Applicant): Promise<AdmittedRequest> {
  const { requestId, payer, sharesOf, options, chat, bodyHash, watch, signal } = applicant
  const busy = parts.router.refusal(chat.model, sharesOf)
  if (busy !== undefined) throw busy
  const quoted = await quoteRequest(parts, chat, upstreamCacheKey(chat, payer, requestId), {
    account: sharesOf,
    signal,
    async refuseUnpaid(least, asked) {
      checkKeyCap(options, { ...asked, quote: { ...asked.quote, amount: least }, searchMax: zero })
      await (parts.refuseUnpaid?.(least, asked) ?? refuseUnpaid(parts, payer, least, asked))
    },
  })
  const { model } = quoted
  checkKeyCap(options, quoted)
  parts.failpoint('after_quote')
  const call = {
    requestId,
    payer,
    quote: quoted.quote.amount,
    model: model.id,
    stream: chat.stream,
    maxTokens: quoted.quote.maxTokens,
    bodyHash,
    optionsVersion: options.version,
  }
  const decision = await watch.during(
    'hold',
    () => parts.holds.place(call),
    (decided) => ('hold' in decided ? 'held' : decided.refusal.code),
  )
  if ('refusal' in decision) {
    const { inFlightCap: cap, openRequests } = parts
    const missing = decision.refusal.inFlight + quoted.quote.amount - cap
    const retryAfterMs = openRequests.roomInMs(payer.accountId, missing)
    throw refusalError(decision.refusal, { model, quote: quoted.quote, cap, payer, retryAfterMs })
  }
  return { requestId, sharesOf, chat, ...quoted, searchPerCall: parts.prices.searchPerCall, hold: decision.hold, watch }
}

/** Limits who can make us count long input. */
export type Counting = {
  readonly account: string
  readonly signal: AbortSignal
  /** Throws when the account cannot pay even the lowest possible cost. Counting costs CPU time, and no money is held for it yet. */
  readonly refuseUnpaid: (least: Usdc, asked: Pick<QuotedRequest, 'model' | 'quote'>) => Promise<void>
}

/** Computes the quote without placing a hold. */
export async function quoteRequest(
  { prices, web, inFlightCap, countTokens }: Pick<AdmissionParts, 'prices' | 'web' | 'inFlightCap' | 'countTokens'>,
  chat: ChatRequest,
  cacheKey: string,
  { account, signal, refuseUnpaid }: Counting,
): Promise<QuotedRequest> {
  const model = prices.models.get(chat.model)!
  const offer = offerTools(chat, web)
  const requestOptions = requestOptionsOf(cacheKey, chat, offer)
  const request = toModelRequest(chat, requestOptions)
  const input = inputOf(request)
  let inputTokens: number | undefined
  const bound = await boundQuotedInput(input, async (texts, bytes) => {
    const tokensMax = model.contextLength
    if (bytes > tokensMax * bytesPerTokenExpectedMax) throw new UnreadableInputError(model)
    await refuseUnpaid(leastInputCost(model, bytes), { model, quote: quote(model, bytes, chat.maxTokens) })
    inputTokens = await countTokens(texts, { account, signal, tokensMax })
    // The upstream would refuse it too, but only after we held money and sent it.
    if (inputTokens > tokensMax) throw new UnreadableInputError(model)
    return inputTokens
  })
  const most = (maxTokens: number) => {
    const quoted = quote(model, bound, maxTokens)
    const searches = offer.has('web_search') ? searchMax(model, bound, prices.searchPerCall) : zero
    return { quote: quoted, searchMax: min(searches, max(zero, fromAtomic(inFlightCap - quoted.amount))) }
  }
  const common = { model, offer, requestOptions }
  if (bound + chat.maxTokens <= model.contextLength) {
    return { ...common, request, input: { ...input, tokens: inputTokens }, ...most(chat.maxTokens) }
  }
  inputTokens ??= await countTokens(input.texts, { account, signal, tokensMax: model.contextLength })
  const maxTokens = Math.min(chat.maxTokens, contextLeft(model, inputTokens, input))
  const clamped = { ...request, maxOutputTokens: Math.max(maxOutputTokensMin, maxTokens) }
  return { ...common, request: clamped, input: { ...input, tokens: inputTokens }, ...most(maxTokens) }
}

/** The tokens that the model's context leaves for the answer. The hold and the upstream request never exceed this. */
function contextLeft(model: Model, inputTokens: number, input: InputText): number {
  const left = model.contextLength - framedTokens(inputTokens, input)
  if (left < maxOutputTokensMin)
    throw new ContextLengthExceededError(
      `it has ${inputTokens} tokens; the context length of ${model.id} is ${model.contextLength} tokens, which leaves none for the answer. Shorten it.`,
    )
  return left
}

/** No natural language or source code has so many bytes per token, only input such as repeated spaces: it is refused uncounted. */
const bytesPerTokenExpectedMax = 10

/** Throws when the ledger would not hold even this much. Called before work that costs CPU time. */
export async function refuseUnpaid(
  { database, inFlightCap: cap }: Pick<AdmissionParts, 'database' | 'inFlightCap'>,
  payer: Payer,
  least: Usdc,
  asked: Pick<QuotedRequest, 'model' | 'quote'>,
): Promise<void> {
  const { refusal } = await quoteHold(database, payer, least, cap)
  if (refusal !== undefined) throw refusalError(refusal, { ...asked, cap, payer })
}

class UnreadableInputError extends ContextLengthExceededError {
  constructor({ id, contextLength }: Model) {
    super(`it has more than ${contextLength} tokens, the context length of ${id}. Shorten it.`)
  }
}

/**
 * The customer's `prompt_cache_key`, hashed with the account id. Customers who choose the same key must not share a cache:
 * `cached_tokens` would reveal each other's prompts. Without a key, the request's own id.
 */
function upstreamCacheKey({ promptCacheKey }: ChatRequest, { accountId }: Payer, requestId: RequestId): string {
  return promptCacheKey === undefined ? formatRequestId(requestId) : hash('sha256', `${accountId}\n${promptCacheKey}`)
}

function requestOptionsOf(cacheKey: string, chat: ChatRequest, offer: Offer): RequestOptions {
  return {
    promptCacheKey: cacheKey,
    extraTools: toolDefinitions(offer),
    // We run our tools and the client runs its own: one round cannot wait for both.
    ...(offer.size > 0 && chat.tools.length > 0 && { parallelToolCalls: false }),
  }
}
