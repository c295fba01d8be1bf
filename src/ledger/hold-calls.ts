import type { ErrorCode } from '../errors.ts'
import type { Usdc } from '../money/usdc.ts'
import type { RequestId } from './request-id.ts'

// What can be asked of `Holds`, and what it answers.

/** Who pays: an account, by one of its keys. */
export type Payer = {
  readonly partition: number
  readonly accountId: string
  readonly keyId: string
  /** Where more USDC can be sent; for refusals. */
  readonly depositAddress?: string | undefined
}

export type HoldCall = {
  readonly requestId: RequestId
  readonly payer: Payer
  readonly quote: Usdc
  readonly model: string
  readonly stream: boolean
  readonly maxTokens: number
  /** Of a request whose client may repeat it: by this a retry finds it. */
  readonly bodyHash?: bigint | undefined
}

/** Money reserved for one request. `quote = fromCredit + authorized`, to the atomic unit. */
export type Hold = HoldCall & {
  readonly fromCredit: Usdc
  readonly authorized: Usdc
  /** Sequence of the authorization in the account; none when nothing had to be authorized. */
  readonly nonce: bigint | undefined
  /** By the database's clock. */
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

/** How a request ended. A void gives the hold back whole, as if it had never been. */
export type EndCall = {
  readonly requestId: RequestId
  readonly payer: Payer
  readonly status: 'succeeded' | 'failed' | 'cancelled'
  readonly voided: boolean
  readonly charged: Usdc
  readonly searchCost: Usdc
  readonly searchCalls: number
  readonly fetchCalls: number
  readonly usage: RequestUsage | undefined
  readonly finishReason: string | undefined
  readonly errorCode: string | undefined
  readonly firstTokenMs: number | undefined
  readonly totalMs: number
}

export type RequestUsage = {
  readonly promptTokens: number
  readonly completionTokens: number
  readonly reasoningTokens: number
  readonly cachedTokens: number
  readonly source: 'upstream' | 'counted'
}

/** The end that the ledger keeps. `endedNow` is false when another end of the same request came first. */
export type End = {
  readonly endedNow: boolean
  readonly status: string
  readonly charged: Usdc
}

/** How far an open stream has come. */
export type CheckpointCall = {
  readonly requestId: RequestId
  readonly partition: number
  readonly promptTokens: number
  readonly completionTokens: number
}

/** What a request may cost beyond its quote from now on, all told: said again, it changes nothing. */
export type ExtensionCall = {
  readonly requestId: RequestId
  readonly payer: Payer
  readonly total: Usdc
}

/** `ended`: somebody else has ended the request, and nothing of it can grow any more. */
export type ExtensionDecision = 'extended' | 'ended' | HoldRefusalCode

/** The last two were not run: too few of `max_tokens` were left for an answer, or the money could not be held. */
export type ToolCallStatus = 'completed' | 'failed' | 'max_tokens_spent' | 'budget_spent'

/** A call of one of our tools that has come to its end. */
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
