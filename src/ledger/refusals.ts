import { ServiceError } from '../errors.ts'
import { moneyFields } from '../money/money-fields.ts'
import { format, fromAtomic, max, type Usdc, zero } from '../money/usdc.ts'
import type { Account } from './accounts.ts'

/** The machine-readable part of a 402 or 429. */
export type RefusalAdvice = {
  readonly quote: Usdc
  readonly spendable: Usdc
  readonly inFlight: Usdc
  /** The largest `max_tokens` with which the same request would be admitted now. */
  readonly affordableMaxTokens: number
  readonly depositAddress: string | null
  /** A wallet account: it accepts no deposits and pays over x402. */
  readonly x402Wallet: string | undefined
}

export class InsufficientBalanceError extends ServiceError {
  constructor(advice: RefusalAdvice) {
    super(
      'insufficient_balance',
      `This request may cost up to ${format(advice.quote)} USDC; ${format(advice.spendable)} USDC is available. ` +
        adviseTokens(advice, remedyOf(advice)),
      { extra: adviceFields(advice, advice.spendable) },
    )
  }
}

/** The account has nothing to spend. Its request is refused before it is read, so its cost is unknown. */
export class NoBalanceError extends ServiceError {
  constructor(account: Pick<Account, 'spendable' | 'held' | 'extended' | 'address' | 'wallet'>) {
    const { spendable, held, extended, address, wallet } = account
    const advice: RefusalAdvice = {
      quote: leastCharge,
      spendable,
      inFlight: fromAtomic(held + extended),
      affordableMaxTokens: 0,
      depositAddress: address ?? null,
      x402Wallet: wallet,
    }
    super(
      'insufficient_balance',
      `Every request costs at least ${format(leastCharge)} USDC; ${format(spendable)} USDC is available. ` +
        adviseTokens(advice, remedyOf(advice)),
      { extra: adviceFields(advice, spendable) },
    )
  }
}

const leastCharge = fromAtomic(1n)

/** Money that only open requests hold is released without a deposit. */
function remedyOf({ quote, spendable, inFlight, x402Wallet }: RefusalAdvice): string {
  const toPay =
    x402Wallet === undefined
      ? 'deposit USDC'
      : `pay the request over x402 from ${x402Wallet} (POST /x402/v1/chat/completions) or use a key of an account with a deposit address`
  if (spendable + inFlight < quote) return `${toPay.charAt(0).toUpperCase()}${toPay.slice(1)}`
  return `Open requests hold ${format(inFlight)} USDC: wait until they end or ${toPay}`
}

export class KeyLimitExceededError extends ServiceError {
  constructor(advice: RefusalAdvice, limitLeft: Usdc) {
    super(
      'key_limit_exceeded',
      `This request may cost up to ${format(advice.quote)} USDC; this key may spend ${format(max(zero, limitLeft))} USDC more. ` +
        adviseTokens(advice, "Raise the key's limit"),
      { extra: adviceFields(advice, max(zero, limitLeft)) },
    )
  }
}

export class InFlightCapError extends ServiceError {
  constructor(advice: RefusalAdvice, cap: Usdc, retryAfterMs?: number) {
    super(
      'in_flight_cap',
      `${format(advice.inFlight)} USDC of this account is held by running requests, and this one may cost up to ` +
        `${format(advice.quote)} USDC: together more than the limit of ${format(cap)} USDC. ` +
        'Retry when some have ended, or lower max_tokens.',
      { extra: adviceFields(advice, advice.spendable), retryAfterMs },
    )
  }
}

export class QuoteExceedsCapError extends ServiceError {
  constructor(advice: RefusalAdvice, cap: Usdc) {
    super(
      'quote_exceeds_cap',
      `This request may cost up to ${format(advice.quote)} USDC; an account can hold at most ${format(cap)} USDC, ` +
        `so waiting does not help. ${adviseTokens(advice, advice.affordableMaxTokens < 1 ? 'Shorten the input or lower max_tokens' : 'Shorten the input')}`,
      { extra: adviceFields(advice, cap) },
    )
  }
}

/** The operator suspended the account. Its money still belongs to its owner; the credit of a wallet is paid back when it is resumed. */
export class AccountSuspendedError extends ServiceError {
  constructor(x402Wallet?: string) {
    super(
      'account_suspended',
      `This account is suspended and its requests are refused. Nothing was held. ${x402Wallet === undefined ? 'The balance can be withdrawn.' : 'Its credit is not paid back while it is suspended: contact the operator.'}`,
    )
  }
}

/** The audit found a violation: new requests are refused until an operator has looked. */
export class LedgerFrozenError extends ServiceError {
  constructor() {
    super(
      'ledger_frozen',
      'New requests are paused while the ledger is being checked. Nothing was held. Try again later.',
      {
        retryAfterMs: 60_000,
      },
    )
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
