import type { ErrorCode } from '../errors.ts'
import type { Usdc } from '../money/usdc.ts'
import type { RequestId } from './request-id.ts'
import type { EndedStatus, UsageSource } from './states.ts'

// The calls of `Holds`, and their results.

/** The account that pays, and its key. */
export type Payer = {
  readonly partition: number
  readonly accountId: string
  readonly keyId: string
  /** Where the customer can send more USDC; for refusals. */
  readonly depositAddress?: string | undefined
  /** Wallet accounts only: the address that pays over x402; for refusals. */
  readonly x402Wallet?: string | undefined
}

export type HoldCall = {
  readonly requestId: RequestId
  readonly payer: Payer
  readonly quote: Usdc
  readonly model: string
  readonly stream: boolean
  readonly maxTokens: number
  /** Only for a request that its client may retry: a retry finds it by this hash. */
  readonly bodyHash?: bigint | undefined
  /** The version of the key's options that allowed the request; undefined: not checked. */
  readonly optionsVersion?: number | undefined
}

/** A hold of a wallet account, with the accepted payment that pays for it. */
export type PaidHoldCall = HoldCall & { readonly payment: AcceptedPayment }

/** A payment of a wallet that the gateway has accepted. */
export type AcceptedPayment = {
  /** The wallet's address, lower case. */
  readonly payer: string
  readonly nonce: Buffer
  /** The id of its row in `deposits`. */
  readonly depositId: string
  /** The gateway's id. */
  readonly gatewayId: string
}

/** Money reserved for one request. `quote = fromCredit + authorized`, to the atomic unit. */
export type Hold = HoldCall & {
  readonly fromCredit: Usdc
  readonly authorized: Usdc
  /** The database's clock. */
  readonly createdAt: Date
}

/** Why no money was reserved, with the numbers at the instant of the decision. */
export type HoldRefusal = {
  readonly code: HoldRefusalCode
  readonly spendable: Usdc
  readonly inFlight: Usdc
  /** What the key may still spend in its window; undefined when it has no limit. */
  readonly limitLeft: Usdc | undefined
}

export type HoldRefusalCode = Extract<
  ErrorCode,
  | 'invalid_api_key'
  | 'api_key_revoked'
  | 'api_key_expired'
  | 'account_suspended'
  | 'quote_exceeds_cap'
  | 'key_limit_exceeded'
  | 'insufficient_balance'
  | 'in_flight_cap'
  | 'settlement_delayed'
  | 'ledger_frozen'
>

export type HoldDecision = { readonly hold: Hold } | { readonly refusal: HoldRefusal }

/** How a request ended. */
export type EndCall = {
  readonly requestId: RequestId
  readonly payer: Payer
  readonly status: Exclude<EndedStatus, 'refused'>
  /**
   * A void releases the whole hold. Undefined: the ledger voids it if the account's allowance covers `charged`, and otherwise charges
   * that (`spare_cancels`).
   */
  readonly voided: boolean | undefined
  readonly charged: Usdc
  readonly searchCost: Usdc
  readonly searchCalls: number
  readonly fetchCalls: number
  readonly usage: RequestUsage | undefined
  readonly finishReason: string | undefined
  readonly errorCode: string | undefined
  readonly firstTokenMs: number | undefined
  readonly totalMs: number
  /** Undefined when unknown, as for a request whose node died. */
  readonly upstream?: UpstreamRecord | undefined
}

/** The provider that served a request, and its cost to us. For the operator; it changes no customer's charge. */
export type UpstreamRecord = {
  /** The provider of the last attempt; undefined when there was none. */
  readonly provider: string | undefined
  /** Requests sent to providers, over all rounds. */
  readonly attempts: number
  /** The providers' charge to us; undefined when unknown. */
  readonly cost: Usdc | undefined
}

export type RequestUsage = {
  readonly promptTokens: number
  readonly completionTokens: number
  readonly reasoningTokens: number
  readonly cachedTokens: number
  readonly source: UsageSource
}

/**
 * The end that the ledger has stored. `endedNow` is false when another end of the same request came first. The status `lost` means
 * that there was no hold, as after a failover that lost it: nothing was charged.
 */
export type End = {
  readonly endedNow: boolean
  readonly status: string
  readonly charged: Usdc
}

/** The progress of an open stream. */
export type CheckpointCall = {
  readonly requestId: RequestId
  readonly partition: number
  readonly promptTokens: number
  readonly completionTokens: number
}

/** The most that a request may cost beyond its quote, in total, so that the call is idempotent. */
export type ExtensionCall = {
  readonly requestId: RequestId
  readonly payer: Payer
  readonly total: Usdc
}

/** `ended`: the request has already ended elsewhere, so its hold cannot grow. */
export type ExtensionDecision = 'extended' | 'ended' | HoldRefusalCode

/** Tool calls with the last two outcomes were not run: too few of `max_tokens` were left for an answer, or the money could not be held. */
export type ToolCallStatus = 'completed' | 'failed' | 'max_tokens_spent' | 'budget_spent'

/** A finished call of one of our tools. */
export type ToolCallRecord = {
  readonly requestId: RequestId
  readonly partition: number
  /** The calls of a request are numbered from 1. */
  readonly number: number
  readonly kind: 'search' | 'fetch'
  readonly status: ToolCallStatus
  readonly cost: Usdc
  readonly results: number
}

export type RefusalCall = {
  readonly requestId: RequestId
  readonly payer: Payer
  readonly model: string | undefined
  readonly stream: boolean
  readonly maxTokens: number | undefined
  readonly errorCode: ErrorCode
}
