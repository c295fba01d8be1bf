import { hash } from 'node:crypto'
import type { Model, PriceList } from '../billing/price-list.ts'
import { boundQuotedInput, type InputText, leastInputCost, type Quote, quote, searchMax } from '../billing/quote.ts'
import type { Database } from '../db/database.ts'
import type { Failpoint } from '../failpoints.ts'
import { findKey, InvalidApiKeyError } from '../identity/api-keys.ts'
import type { ChatRequest } from '../inference/chat-request.ts'
import {
  inputOf,
  type MappingOptions,
  maxOutputTokensMin,
  type ResponsesRequest,
  toResponsesRequest,
} from '../inference/responses-request.ts'
import type { CountOptions } from '../inference/tokens.ts'
import { ContextLengthExceededError } from '../inference/upstream.ts'
import type { Hold, Payer } from '../ledger/hold-calls.ts'
import type { Holds } from '../ledger/holds.ts'
import { formatRequestId, type RequestId } from '../ledger/request-id.ts'
import { readStanding } from '../ledger/standing.ts'
import { type Usdc, zero } from '../money/usdc.ts'
import type { RequestWatch } from '../observe/request-watch.ts'
import type { WebTools } from '../tools/web-tools.ts'
import { findRefusal, refusalError } from './find-refusal.ts'
import type { OpenRequests } from './open-requests.ts'
import { type Offer, offerTools, toolDefinitions } from './tool-offer.ts'

/** What a request will be upstream, and what it may cost at most. */
export type QuotedOrder = {
  readonly model: Model
  /** Which of our own tools the model is given. */
  readonly offer: Offer
  /** How every round of it becomes an upstream request. */
  readonly mapping: MappingOptions
  readonly upstreamRequest: ResponsesRequest
  readonly input: InputText
  /** As counted; undefined where the input is too short to be counted. */
  readonly inputTokens: number | undefined
  readonly quote: Quote
  /** The most that searching may add to the quote; 0 where the model cannot search. */
  readonly searchMax: Usdc
}

/** A request that is paid for: parsed, quoted, and its quote held. */
export type Order = QuotedOrder & {
  readonly requestId: RequestId
  readonly chat: ChatRequest
  /** Atomic USDC for a search that ran. */
  readonly searchPerCall: bigint
  readonly hold: Hold
  /** Keeps the times of its parts. */
  readonly watch: RequestWatch
}

export type AdmissionParts = {
  readonly web: WebTools
  readonly holds: Holds
  /** Asked what an account has before its long input is counted. */
  readonly database: Database
  readonly prices: PriceList
  readonly inFlightCap: Usdc
  /** Tells when money in flight comes back. */
  readonly openRequests: OpenRequests
  readonly countTokens: (texts: readonly string[], options: CountOptions) => Promise<number>
  readonly failpoint: Failpoint
}

/** A request that asks to be admitted. */
export type Applicant = {
  readonly requestId: RequestId
  readonly payer: Payer
  readonly chat: ChatRequest
  readonly bodyHash: bigint | undefined
  readonly watch: RequestWatch
  /** Aborts when its client has left. */
  readonly signal: AbortSignal
}

/** Quotes a request and holds the quote, or refuses with what the customer can do about it. */
export async function admit(parts: AdmissionParts, applicant: Applicant): Promise<Order> {
  const { requestId, payer, chat, bodyHash, watch, signal } = applicant
  const quoted = await quoteOrder(parts, chat, upstreamCacheKey(chat, payer, requestId), {
    account: payer.accountId,
    signal,
    refuseUnpaid: (least, asked) => refuseUnpaid(parts, payer, least, asked),
  })
  const { model } = quoted
  parts.failpoint('after_quote')
  const call = {
    requestId,
    payer,
    quote: quoted.quote.amount,
    model: model.id,
    stream: chat.stream,
    maxTokens: quoted.quote.maxTokens,
    bodyHash,
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
  return { requestId, chat, ...quoted, searchPerCall: parts.prices.searchPerCall, hold: decision.hold, watch }
}

/** For whom long input is counted. */
export type Counting = {
  readonly account: string
  readonly signal: AbortSignal
  /** Throws when the account cannot pay even the least that the request costs. Counting takes a processor's time, and nothing is held for it. */
  readonly refuseUnpaid: (least: Usdc, asked: Pick<QuotedOrder, 'model' | 'quote'>) => Promise<void>
}

/** The arithmetic of a hold, without one. */
export async function quoteOrder(
  { prices, web, countTokens }: Pick<AdmissionParts, 'prices' | 'web' | 'countTokens'>,
  chat: ChatRequest,
  cacheKey: string,
  { account, signal, refuseUnpaid }: Counting,
): Promise<QuotedOrder> {
  const model = prices.models.get(chat.model)!
  const offer = offerTools(chat, web)
  const mapping = mappingOf(model, cacheKey, chat, offer)
  const upstreamRequest = toResponsesRequest(chat, mapping)
  const input = inputOf(upstreamRequest)
  let inputTokens: number | undefined
  const bound = await boundQuotedInput(input, async (texts, bytes) => {
    const tokensMax = model.contextLength
    if (bytes > tokensMax * bytesPerTokenExpectedMax) throw new UnreadableInputError(model)
    await refuseUnpaid(leastInputCost(model, bytes), { model, quote: quote(model, bytes, chat.maxTokens) })
    inputTokens = await countTokens(texts, { account, signal, tokensMax })
    // The upstream would refuse it too: after it was held for, and sent.
    if (inputTokens > tokensMax) throw new UnreadableInputError(model)
    return inputTokens
  })
  const common = {
    model,
    offer,
    mapping,
    input,
    searchMax: offer.has('web_search') ? searchMax(model, bound, prices.searchPerCall) : zero,
  }
  if (bound + chat.maxTokens <= model.contextLength) {
    return { ...common, upstreamRequest, inputTokens, quote: quote(model, bound, chat.maxTokens) }
  }
  inputTokens ??= await countTokens(input.texts, { account, signal, tokensMax: model.contextLength })
  const maxTokens = Math.min(chat.maxTokens, contextLeft(model, inputTokens, input))
  const clamped = toResponsesRequest(chat, { ...mapping, maxOutputTokens: maxTokens })
  return { ...common, upstreamRequest: clamped, inputTokens, quote: quote(model, bound, maxTokens) }
}

/** What the model's context leaves for the answer: no more is held for or asked of the upstream. */
function contextLeft(model: Model, inputTokens: number, { itemCount }: InputText): number {
  const left = model.contextLength - inputTokens - framingTokens * itemCount - framingTokens
  if (left < maxOutputTokensMin) throw new NoRoomForAnswerError(model, inputTokens)
  return left
}

/** Of a message, and of the answer. */
const framingTokens = 3

/** No language and no code has so many; it takes repeated spaces and the like. Longer input is refused without counting. */
const bytesPerTokenExpectedMax = 10

async function refuseUnpaid(
  { database, inFlightCap: cap }: AdmissionParts,
  payer: Payer,
  least: Usdc,
  asked: Pick<QuotedOrder, 'model' | 'quote'>,
): Promise<void> {
  const standing = await readStanding(database, payer)
  if (least <= standing.available) return
  const key = await findKey(database, payer, payer.keyId)
  if (key === undefined) throw new InvalidApiKeyError()
  const refusal = findRefusal(least, { ...asked, cap, payer }, standing, key)
  if (refusal !== undefined) throw refusal
}

class UnreadableInputError extends ContextLengthExceededError {
  constructor({ id, contextLength }: Model) {
    super(`it has more than the ${contextLength} tokens that ${id} reads. Shorten it.`)
  }
}

class NoRoomForAnswerError extends ContextLengthExceededError {
  constructor({ id, contextLength }: Model, inputTokens: number) {
    super(
      `it has ${inputTokens} tokens; ${id} reads and writes ${contextLength} together, which leaves none for an answer. Shorten it.`,
    )
  }
}

/**
 * The customer's `prompt_cache_key`, hashed with the account: customers who choose the same key must not share a cache, where
 * `cached_tokens` would tell them about each other's prompts. Without one it is the request's own id.
 */
function upstreamCacheKey({ promptCacheKey }: ChatRequest, { accountId }: Payer, requestId: RequestId): string {
  return promptCacheKey === undefined ? formatRequestId(requestId) : hash('sha256', `${accountId}\n${promptCacheKey}`)
}

function mappingOf(model: Model, cacheKey: string, chat: ChatRequest, offer: Offer): MappingOptions {
  return {
    upstreamModel: model.upstreamModel,
    promptCacheKey: cacheKey,
    extraTools: toolDefinitions(offer),
    // Ours are run here and the client's there: one round cannot wait for both.
    ...(offer.size > 0 && chat.tools.length > 0 && { parallelToolCalls: false }),
  }
}
