import { ServiceError } from '../errors.ts'
import { moneyFields } from '../money/money-fields.ts'
import { format, max, type Usdc, zero } from '../money/usdc.ts'

/** What a 402 or 429 tells a program beside the words. */
export type RefusalAdvice = {
  readonly quote: Usdc
  readonly spendable: Usdc
  readonly inFlight: Usdc
  /** The largest `max_tokens` that the same request could ask for now. */
  readonly affordableMaxTokens: number
  readonly depositAddress: string | null
}

export class InsufficientBalanceError extends ServiceError {
  readonly code = 'insufficient_balance'
  constructor(advice: RefusalAdvice) {
    super(
      `This request may cost up to ${format(advice.quote)} USDC; ${format(advice.spendable)} USDC is available. ` +
        adviseTokens(advice, remedyOf(advice)),
      { extra: adviceFields(advice, advice.spendable) },
    )
  }
}

/** Money that only open requests keep comes back by itself. */
function remedyOf({ quote, spendable, inFlight }: RefusalAdvice): string {
  if (spendable + inFlight < quote) return 'Deposit USDC'
  return `Open requests hold ${format(inFlight)} USDC: wait until they end or deposit USDC`
}

export class KeyLimitExceededError extends ServiceError {
  readonly code = 'key_limit_exceeded'
  constructor(advice: RefusalAdvice, limitLeft: Usdc) {
    super(
      `This request may cost up to ${format(advice.quote)} USDC; this key may spend ${format(max(zero, limitLeft))} USDC more. ` +
        adviseTokens(advice, "Raise the key's limit"),
      { extra: adviceFields(advice, max(zero, limitLeft)) },
    )
  }
}

export class InFlightCapError extends ServiceError {
  readonly code = 'in_flight_cap'
  constructor(advice: RefusalAdvice, cap: Usdc, retryAfterMs?: number) {
    super(
      `${format(advice.inFlight)} USDC of this account is held by requests still running, and this one may cost up to ` +
        `${format(advice.quote)} USDC: together more than the ${format(cap)} USDC that may be in flight. ` +
        'It clears as they end; retry shortly, or ask for fewer max_tokens.',
      { extra: adviceFields(advice, advice.spendable), retryAfterMs },
    )
  }
}

export class QuoteExceedsCapError extends ServiceError {
  readonly code = 'quote_exceeds_cap'
  constructor(advice: RefusalAdvice, cap: Usdc) {
    super(
      `This request may cost up to ${format(advice.quote)} USDC; at most ${format(cap)} USDC may be in flight at once, ` +
        `so waiting cannot help. ${adviseTokens(advice, 'Shorten the input')}`,
      { extra: adviceFields(advice, cap) },
    )
  }
}

/** The chain or the gateway lags: serving on would pile up money that is charged and not paid. */
export class SettlementDelayedError extends ServiceError {
  readonly code = 'settlement_delayed'
  constructor() {
    super(
      'Too much of this account’s money is charged and not yet settled on chain. It clears by itself as payments settle; retry shortly.',
      { retryAfterMs: 5_000 },
    )
  }
}

/** The operator has suspended the account. Its money is its owner's all the same. */
export class AccountSuspendedError extends ServiceError {
  readonly code = 'account_suspended'
  constructor() {
    super('This account is suspended: no request is taken. Nothing was held; its balance can be withdrawn.')
  }
}

/** The books were found wrong: no new request is taken until an operator has looked. */
export class LedgerFrozenError extends ServiceError {
  readonly code = 'ledger_frozen'
  constructor() {
    super('No new requests are taken while the books are being checked. Nothing was held; try again later.', {
      retryAfterMs: 60_000,
    })
  }
}

function adviseTokens(advice: RefusalAdvice, otherwise: string): string {
  if (advice.affordableMaxTokens < 1) return `${otherwise} and try again.`
  return `${otherwise}, or ask for at most ${advice.affordableMaxTokens} max_tokens.`
}

function adviceFields(advice: RefusalAdvice, available: Usdc): Record<string, string | number | null> {
  return {
    ...moneyFields({ required: advice.quote, available, held: advice.inFlight }),
    affordable_max_tokens: advice.affordableMaxTokens,
    deposit_address: advice.depositAddress,
  }
}
