/** How a held request ended, in what may be written down: ids, names of models, numbers. No word of the customer's. */
export type EndFacts = {
  readonly requestId: string
  readonly accountId: string
  readonly keyId: string
  readonly model: string
  readonly stream: boolean
  readonly maxTokens: number
  readonly status: 'succeeded' | 'failed' | 'cancelled'
  readonly voided: boolean
  readonly quote: bigint
  /** The quote and what the hold grew by. */
  readonly held: bigint
  readonly charged: bigint
  readonly searchCost: bigint
  readonly searchCalls: number
  readonly fetchCalls: number
  readonly usage:
    | {
        readonly promptTokens: number
        readonly completionTokens: number
        readonly reasoningTokens: number
        readonly cachedTokens: number
      }
    | undefined
  readonly finishReason: string | undefined
  readonly errorCode: string | undefined
  readonly firstTokenMs: number | undefined
  /** Who served it; undefined where that is not known. */
  readonly upstream?:
    | {
        readonly provider: string | undefined
        readonly attempts: number
        /** Atomic USDC; undefined: not known. */
        readonly cost: bigint | undefined
      }
    | undefined
}

export type RefusalFacts = {
  readonly requestId: string
  readonly accountId?: string
  readonly keyId?: string
  readonly status: number
  readonly code: string
}
