import { hash } from 'node:crypto'
import type { Model, PriceList } from '../billing/price-list.ts'
import { affordableMaxTokens, boundInput, type InputText, type Quote, quote } from '../billing/quote.ts'
import type { ServiceError } from '../errors.ts'
import type { Failpoint } from '../failpoints.ts'
import { ExpiredApiKeyError, InvalidApiKeyError, RevokedApiKeyError } from '../identity/api-keys.ts'
import type { ChatRequest } from '../inference/chat-request.ts'
import {
  inputItemCount,
  inputTexts,
  type MappingOptions,
  type ResponsesRequest,
  toResponsesRequest,
} from '../inference/responses-request.ts'
import { ContextLengthExceededError } from '../inference/upstream.ts'
import type { Hold, HoldRefusal, Payer } from '../ledger/hold-calls.ts'
import type { Holds } from '../ledger/holds.ts'
import {
  AccountSuspendedError,
  InFlightCapError,
  InsufficientBalanceError,
  KeyLimitExceededError,
  LedgerFrozenError,
  QuoteExceedsCapError,
  type RefusalAdvice,
  SettlementDelayedError,
} from '../ledger/refusals.ts'
import { formatRequestId, type RequestId } from '../ledger/request-id.ts'
import { min, type Usdc, zero } from '../money/usdc.ts'
import type { RequestWatch } from '../observe/request-watch.ts'
import type { WebTools } from '../tools/web-tools.ts'
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
  readonly quote: Quote
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
  readonly prices: PriceList
  readonly inFlightCap: Usdc
  readonly countTokens: (texts: readonly string[]) => Promise<number>
  readonly failpoint: Failpoint
}

/** Quotes a request and holds the quote, or refuses with what the customer can do about it. */
export async function admit(
  parts: AdmissionParts,
  requestId: RequestId,
  payer: Payer,
  chat: ChatRequest,
  bodyHash: bigint | undefined,
  watch: RequestWatch,
): Promise<Order> {
  const quoted = await quoteOrder(parts, chat, upstreamCacheKey(chat, payer, requestId))
  const { model } = quoted
  parts.failpoint('after_quote')
  const call = {
    requestId,
    payer,
    quote: quoted.quote.amount,
    model: model.id,
    stream: chat.stream,
    maxTokens: chat.maxTokens,
    bodyHash,
  }
  const decision = await watch.during(
    'hold',
    () => parts.holds.place(call),
    (decided) => ('hold' in decided ? 'held' : decided.refusal.code),
  )
  if ('refusal' in decision) throw refusalError(decision.refusal, quoted.quote, model, parts.inFlightCap, payer)
  return { requestId, chat, ...quoted, searchPerCall: parts.prices.searchPerCall, hold: decision.hold, watch }
}

/** The arithmetic of a hold, without one. */
export async function quoteOrder(
  { prices, web, countTokens }: Pick<AdmissionParts, 'prices' | 'web' | 'countTokens'>,
  chat: ChatRequest,
  cacheKey: string,
): Promise<QuotedOrder> {
  const model = prices.models.get(chat.model)!
  const offer = offerTools(chat, web)
  const mapping = mappingOf(model, cacheKey, chat, offer)
  const upstreamRequest = toResponsesRequest(chat, mapping)
  const input = { texts: inputTexts(upstreamRequest), itemCount: inputItemCount(upstreamRequest) }
  const bound = await boundInput(input, async (texts) => refuseUnreadable(await countTokens(texts), model))
  return { model, offer, mapping, upstreamRequest, input, quote: quote(model, bound, chat.maxTokens) }
}

/** What the model cannot read by our own count, the upstream would refuse too: after it was held for, and sent. */
function refuseUnreadable(tokens: number, { id, contextLength }: Model): number {
  if (tokens <= contextLength) return tokens
  throw new ContextLengthExceededError(`it has ${tokens} tokens, and ${id} reads at most ${contextLength}. Shorten it.`)
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

/** What a customer is told when the ledger holds nothing. */
export function refusalError(
  refusal: HoldRefusal,
  quoted: Quote,
  model: Model,
  cap: Usdc,
  payer: Pick<Payer, 'depositAddress'>,
): ServiceError {
  const advise = (room: Usdc): RefusalAdvice => ({
    quote: quoted.amount,
    spendable: refusal.spendable,
    inFlight: refusal.inFlight,
    affordableMaxTokens: Math.max(0, affordableMaxTokens(model, quoted.inputTokensMax, min(room, cap))),
    depositAddress: payer.depositAddress ?? null,
  })
  switch (refusal.code) {
    case 'invalid_api_key':
      return new InvalidApiKeyError()
    case 'api_key_revoked':
      return new RevokedApiKeyError()
    case 'api_key_expired':
      return new ExpiredApiKeyError()
    case 'account_suspended':
      return new AccountSuspendedError()
    case 'quote_exceeds_cap':
      return new QuoteExceedsCapError(advise(cap), cap)
    case 'key_limit_exceeded': {
      const limitLeft = refusal.limitLeft ?? zero
      return new KeyLimitExceededError(advise(min(limitLeft, refusal.spendable)), limitLeft)
    }
    case 'insufficient_balance':
      return new InsufficientBalanceError(advise(refusal.spendable))
    case 'settlement_delayed':
      return new SettlementDelayedError()
    case 'ledger_frozen':
      return new LedgerFrozenError()
    case 'in_flight_cap':
      return new InFlightCapError(advise((cap - refusal.inFlight) as Usdc), cap)
  }
}
