import type { Model } from '../billing/price-list.ts'
import { affordableMaxTokens, type Quote } from '../billing/quote.ts'
import type { ServiceError } from '../errors.ts'
import { ExpiredApiKeyError, InvalidApiKeyError, RevokedApiKeyError } from '../identity/key-finder.ts'
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
import { min, type Usdc, zero } from '../money/usdc.ts'

/** The request's cost, its payer, and the in-flight cap. */
export type Asked = {
  readonly model: Model
  readonly quote: Quote
  readonly cap: Usdc
  readonly payer: Pick<Payer, 'depositAddress' | 'x402Wallet'>
  /** When the cap may have room again, if known. */
  readonly retryAfterMs?: number
}

/** The customer's error for a refused hold. */
export function refusalError(refusal: HoldRefusal, asked: Asked): ServiceError {
  const { model, quote, cap, payer, retryAfterMs } = asked
  const advise = (room: Usdc): RefusalAdvice => ({
    quote: quote.amount,
    spendable: refusal.spendable,
    inFlight: refusal.inFlight,
    affordableMaxTokens: Math.max(0, affordableMaxTokens(model, quote.inputTokensMax, min(room, cap))),
    depositAddress: payer.depositAddress ?? null,
    x402Wallet: payer.x402Wallet,
  })
  switch (refusal.code) {
    case 'invalid_api_key':
      return new InvalidApiKeyError()
    case 'api_key_revoked':
      return new RevokedApiKeyError()
    case 'api_key_expired':
      return new ExpiredApiKeyError()
    case 'account_suspended':
      return new AccountSuspendedError(payer.x402Wallet)
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
