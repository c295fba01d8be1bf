import type { Model } from '../billing/price-list.ts'
import { framedTokens, type Quote } from '../billing/quote.ts'
import { ServiceError } from '../errors.ts'
import type { ApiKey } from '../identity/api-keys.ts'
import type { ChatRequest } from '../inference/chat-request.ts'
import type { Payer } from '../ledger/hold-calls.ts'
import { quoteHold } from '../ledger/quote-hold.ts'
import { fromAtomic, type Usdc } from '../money/usdc.ts'
import { type AdmissionParts, quoteRequest, refuseUnpaid } from './admit.ts'
import { checkKeyCap, checkKeyRules, underKeyRules } from './key-rules.ts'
import { admittedMaxTokens, refusalError } from './refusal-error.ts'

/** A request's quote, and whether the ledger would admit it now. Nothing is held. */
export type QuotedChat = {
  readonly model: Model
  readonly quote: Quote
  readonly fromCredit: Usdc
  readonly authorized: Usdc
  readonly available: Usdc
  readonly refusal: ServiceError | undefined
  readonly affordableMaxTokens: number
  /** The most that web searches may add to the quote; 0 when the model cannot search. */
  readonly searchMax: Usdc
  /** The expected count of the input; the quote uses an upper bound. */
  readonly inputTokens: number
}

/** The account and key that the quote is for. */
export type QuotedFor = {
  readonly key: ApiKey
  /** Wallet accounts only; for refusals. */
  readonly x402Wallet: string | undefined
  /** The client's IP address. */
  readonly address: string
  /** Aborts when the client disconnects. */
  readonly signal: AbortSignal
}

/** Quotes like `admit`: applies the key's rules and the ledger's admission rule, without a hold. */
export async function quoteChat(
  parts: Pick<AdmissionParts, 'prices' | 'web' | 'inFlightCap' | 'countTokens' | 'database'>,
  chat: ChatRequest,
  { key, x402Wallet, address, signal }: QuotedFor,
): Promise<QuotedChat> {
  const { inFlightCap: cap, database } = parts
  const { accountId: account, options } = key
  const payer: Payer = { partition: key.partition, accountId: account, keyId: key.id, x402Wallet }
  // The cache key is not counted, so any value works.
  const { model, input, quote, searchMax } = await quoteRequest(parts, underKeyRules(options, chat), '', {
    account,
    signal,
    refuseUnpaid: (least, asked) => refuseUnpaid(parts, payer, least, asked),
  })
  const decision = await quoteHold(database, payer, quote.amount, cap)
  const { fromCredit, spendable, refusal } = decision
  const refusedByKey = thrownBy(() => {
    checkKeyRules(options, chat, address)
    checkKeyCap(options, { model, quote, searchMax })
  })
  return {
    model,
    quote,
    searchMax,
    fromCredit,
    authorized: fromAtomic(quote.amount - fromCredit),
    available: spendable,
    refusal: refusedByKey ?? (refusal && refusalError(refusal, { model, quote, cap, payer })),
    affordableMaxTokens: admittedMaxTokens({ model, quote, cap }, decision, options.maxRequestCost),
    inputTokens: Math.min(
      framedTokens(input.tokens ?? (await parts.countTokens(input.texts, { account, signal })), input),
      quote.inputTokensMax,
    ),
  }
}

function thrownBy(check: () => void): ServiceError | undefined {
  try {
    check()
    return undefined
  } catch (error) {
    if (error instanceof ServiceError) return error
    throw error
  }
}
