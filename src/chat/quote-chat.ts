import type { Model } from '../billing/price-list.ts'
import { affordableMaxTokens, type Quote } from '../billing/quote.ts'
import type { ServiceError } from '../errors.ts'
import type { ApiKey } from '../identity/api-keys.ts'
import type { ChatRequest } from '../inference/chat-request.ts'
import type { Balance } from '../ledger/balance.ts'
import { fromAtomic, max, min, type Usdc, zero } from '../money/usdc.ts'
import { type AdmissionParts, quoteOrder } from './admit.ts'
import { findRefusal, inFlightOf, limitLeftOf } from './find-refusal.ts'

/** What a request would be quoted, and what the ledger would say to it at this moment. Nothing is held. */
export type QuotedChat = {
  readonly model: Model
  readonly quote: Quote
  readonly fromCredit: Usdc
  readonly authorized: Usdc
  readonly refusal: ServiceError | undefined
  readonly affordableMaxTokens: number
  /** The most that searching may add to the quote; 0 where the model cannot search. */
  readonly searchMax: Usdc
  /** About what the input will be counted as; the quote is made of an upper bound. */
  readonly inputTokens: number
}

/** Whose request is quoted. */
export type QuotedFor = {
  readonly balance: Balance
  readonly key: ApiKey
  /** Aborts when the client has left. */
  readonly signal: AbortSignal
}

/** Quotes like `admit`, and decides like `place_holds`, in the same order. */
export async function quoteChat(
  parts: Pick<AdmissionParts, 'prices' | 'web' | 'inFlightCap' | 'countTokens'>,
  chat: ChatRequest,
  { balance, key, signal }: QuotedFor,
): Promise<QuotedChat> {
  const { inFlightCap: cap } = parts
  const account = key.accountId
  // The cache's key is not part of what is counted: any will do.
  const { model, input, inputTokens, quote, searchMax } = await quoteOrder(parts, chat, '', {
    account,
    signal,
    async refuseUnpaid(least, asked) {
      if (least <= balance.available) return
      const refusal = findRefusal(least, { ...asked, cap, payer: {} }, balance, key)
      if (refusal !== undefined) throw refusal
    },
  })
  const fromCredit = min(balance.credit, quote.amount)
  const room = [balance.available, fromAtomic(cap - inFlightOf(balance)), limitLeftOf(key) ?? cap].reduce(min)
  return {
    model,
    quote,
    searchMax: min(searchMax, max(zero, fromAtomic(cap - quote.amount))),
    fromCredit,
    authorized: fromAtomic(quote.amount - fromCredit),
    refusal: findRefusal(quote.amount, { model, quote, cap, payer: {} }, balance, key),
    affordableMaxTokens: Math.max(0, affordableMaxTokens(model, quote.inputTokensMax, max(zero, room))),
    inputTokens: inputTokens ?? (await parts.countTokens(input.texts, { account, signal })),
  }
}
