import type { Model } from '../billing/price-list.ts'
import { affordableMaxTokens, type Quote } from '../billing/quote.ts'
import type { ServiceError } from '../errors.ts'
import { type ApiKey, ExpiredApiKeyError, InvalidApiKeyError, RevokedApiKeyError } from '../identity/api-keys.ts'
import type { HoldRefusal, Payer } from '../ledger/hold-calls.ts'
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
import type { Standing } from '../ledger/standing.ts'
import { fromAtomic, min, type Usdc, zero } from '../money/usdc.ts'

/** What a request would cost, and who would pay for it under which cap. */
export type Asked = {
  readonly model: Model
  readonly quote: Quote
  readonly cap: Usdc
  readonly payer: Pick<Payer, 'depositAddress'>
  /** When there may be room below the cap again, where that is known. */
  readonly retryAfterMs?: number
}

/** What `place_holds` would refuse this amount with, in its order of checks. The quote itself may be more. */
export function findRefusal(amount: Usdc, asked: Asked, standing: Standing, key: ApiKey): ServiceError | undefined {
  const limitLeft = limitLeftOf(key)
  const inFlight = inFlightOf(standing)
  const code = refusalCode(amount, { standing, key, limitLeft, inFlight, cap: asked.cap })
  if (code === undefined) return undefined
  return refusalError({ code, spendable: standing.available, inFlight, limitLeft }, asked)
}

/** What a key may still spend in its window; undefined when it has no limit. */
export function limitLeftOf({ limit, spent, held }: ApiKey): Usdc | undefined {
  return limit === undefined ? undefined : fromAtomic(limit - spent - held)
}

export function inFlightOf({ held, extended }: Pick<Standing, 'held' | 'extended'>): Usdc {
  return fromAtomic(held + extended)
}

type Decided = {
  readonly standing: Standing
  readonly key: ApiKey
  readonly limitLeft: Usdc | undefined
  readonly inFlight: Usdc
  readonly cap: Usdc
}

function refusalCode(
  amount: Usdc,
  { standing, key, limitLeft, inFlight, cap }: Decided,
): HoldRefusal['code'] | undefined {
  if (standing.frozen) return 'ledger_frozen'
  if (key.revokedAt !== undefined) return 'api_key_revoked'
  if (key.expired) return 'api_key_expired'
  if (standing.suspended) return 'account_suspended'
  if (amount > cap) return 'quote_exceeds_cap'
  if (limitLeft !== undefined && amount > limitLeft) return 'key_limit_exceeded'
  if (amount > standing.available) return 'insufficient_balance'
  if (inFlight + amount > cap) return 'in_flight_cap'
  return standing.settlementDelayed ? 'settlement_delayed' : undefined
}

/** What a customer is told when the ledger holds nothing. */
export function refusalError(refusal: HoldRefusal, asked: Asked): ServiceError {
  const { model, quote, cap, payer, retryAfterMs } = asked
  const advise = (room: Usdc): RefusalAdvice => ({
    quote: quote.amount,
    spendable: refusal.spendable,
    inFlight: refusal.inFlight,
    affordableMaxTokens: Math.max(0, affordableMaxTokens(model, quote.inputTokensMax, min(room, cap))),
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
      return new InFlightCapError(advise((cap - refusal.inFlight) as Usdc), cap, retryAfterMs)
  }
}
