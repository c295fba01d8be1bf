import type { Model } from '../billing/price-list.ts'
import { affordableMaxTokens, type Quote } from '../billing/quote.ts'
import type { ServiceError } from '../errors.ts'
import type { ApiKey } from '../identity/api-keys.ts'
import type { ChatRequest } from '../inference/chat-request.ts'
import type { Balance } from '../ledger/balance.ts'
import type { HoldRefusal } from '../ledger/hold-calls.ts'
import { fromAtomic, max, min, type Usdc, zero } from '../money/usdc.ts'
import { type AdmissionParts, quoteOrder, refusalError } from './admit.ts'

/** What a request would be quoted, and what the ledger would say to it at this moment. Nothing is held. */
export type QuotedChat = {
  readonly model: Model
  readonly quote: Quote
  readonly fromCredit: Usdc
  readonly authorized: Usdc
  readonly refusal: ServiceError | undefined
  readonly affordableMaxTokens: number
  /** About what the input will be counted as; the quote is made of an upper bound. */
  readonly inputTokens: number
}

/** Quotes like `admit`, and decides like `place_holds`, in the same order. */
export async function quoteChat(
  parts: Pick<AdmissionParts, 'prices' | 'web' | 'inFlightCap' | 'countTokens'>,
  chat: ChatRequest,
  balance: Balance,
  key: ApiKey,
): Promise<QuotedChat> {
  // The cache's key is not part of what is counted: any will do.
  const { model, input, quote: quoted } = await quoteOrder(parts, chat, '')
  const fromCredit = min(balance.credit, quoted.amount)
  const limitLeft = key.limit === undefined ? undefined : fromAtomic(key.limit - key.spent - key.held)
  const inFlight = fromAtomic(balance.held + balance.extended)
  const code = refusalCode(quoted.amount, { balance, key, limitLeft, inFlight, cap: parts.inFlightCap })
  const room = [balance.available, fromAtomic(parts.inFlightCap - inFlight), limitLeft ?? parts.inFlightCap].reduce(min)
  return {
    model,
    quote: quoted,
    fromCredit,
    authorized: fromAtomic(quoted.amount - fromCredit),
    refusal:
      code === undefined
        ? undefined
        : refusalError(
            { code, spendable: balance.available, inFlight, limitLeft },
            quoted,
            model,
            parts.inFlightCap,
            {},
          ),
    affordableMaxTokens: Math.max(0, affordableMaxTokens(model, quoted.inputTokensMax, max(zero, room))),
    inputTokens: await parts.countTokens(input.texts),
  }
}

type Standing = {
  readonly balance: Balance
  readonly key: ApiKey
  readonly limitLeft: Usdc | undefined
  readonly inFlight: Usdc
  readonly cap: Usdc
}

function refusalCode(
  amount: Usdc,
  { balance, key, limitLeft, inFlight, cap }: Standing,
): HoldRefusal['code'] | undefined {
  if (balance.frozen) return 'ledger_frozen'
  if (key.revokedAt !== undefined) return 'api_key_revoked'
  if (key.expired) return 'api_key_expired'
  if (balance.suspended) return 'account_suspended'
  if (amount > cap) return 'quote_exceeds_cap'
  if (limitLeft !== undefined && amount > limitLeft) return 'key_limit_exceeded'
  if (amount > balance.available) return 'insufficient_balance'
  if (inFlight + amount > cap) return 'in_flight_cap'
  return balance.settlementDelayed ? 'settlement_delayed' : undefined
}
