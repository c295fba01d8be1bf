import type { Model } from '../billing/price-list.ts'
import { affordableMaxTokens, type Quote } from '../billing/quote.ts'
import { ServiceError } from '../errors.ts'
import { ExpiredApiKeyError, InvalidApiKeyError, RevokedApiKeyError } from '../identity/key-finder.ts'
import type { HoldRefusal, Payer } from '../ledger/hold-calls.ts'
import type { HoldQuote } from '../ledger/quote-hold.ts'
import {
  AccountSuspendedError,
  InFlightCapError,
  InsufficientBalanceError,
  KeyLimitExceededError,
  LedgerFrozenError,
  QuoteExceedsCapError,
  type RefusalAdvice,
} from '../ledger/refusals.ts'
import { fromAtomic, max, min, type Usdc, zero } from '../money/usdc.ts'

/** The request's cost, its payer, and the in-flight cap. */
export type Asked = {
  readonly model: Model
  readonly quote: Quote
  readonly cap: Usdc
  readonly payer: Pick<Payer, 'depositAddress' | 'x402Wallet'>
  /** When the cap may have room again, if known. */
  readonly retryAfterMs?: number
}

/** The largest `max_tokens` with which the ledger would admit the request now. `requestMax`: the most that it may cost. */
export function admittedMaxTokens(
  { model, quote, cap }: Pick<Asked, 'model' | 'quote' | 'cap'>,
  { spendable, inFlight, limitLeft }: Pick<HoldQuote, 'spendable' | 'inFlight' | 'limitLeft'>,
  requestMax = cap,
): number {
  const room = [spendable, fromAtomic(cap - inFlight), limitLeft ?? cap, requestMax].reduce(min)
  return Math.max(0, affordableMaxTokens(model, quote.inputTokensMax, max(zero, room)))
}

/** The customer's error for a refused hold. */
export function refusalError(refusal: HoldRefusal, asked: Asked): ServiceError {
  const { quote, cap, payer, retryAfterMs } = asked
  // A wallet can pay more with its next request.
  const isPaidByWallet = payer.x402Wallet !== undefined && refusal.code !== 'insufficient_balance'
  const advice: RefusalAdvice = {
    quote: quote.amount,
    spendable: refusal.spendable,
    inFlight: refusal.inFlight,
    affordableMaxTokens: admittedMaxTokens(asked, isPaidByWallet ? { ...refusal, spendable: cap } : refusal),
    depositAddress: payer.depositAddress ?? null,
    x402Wallet: payer.x402Wallet,
  }
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
      return new QuoteExceedsCapError(advice, cap)
    case 'key_limit_exceeded':
      return new KeyLimitExceededError(advice, refusal.limitLeft ?? zero)
    case 'insufficient_balance':
      return new InsufficientBalanceError(advice)
    case 'settlement_delayed':
      return new ServiceError(
        'settlement_delayed',
        'Unpaid charges of this account reached the limit. They are being paid on chain; retry in a moment.',
        {
          retryAfterMs: 5_000,
        },
      )
    case 'ledger_frozen':
      return new LedgerFrozenError()
    case 'in_flight_cap':
      return new InFlightCapError(advice, cap, retryAfterMs)
  }
}
