/** How a held request ended, limited to what may be logged: ids, model names, numbers. No customer text. */
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
  /** The quote plus all extensions of the hold. */
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
  /** The provider that served the request; undefined when it is not known. */
  readonly upstream?:
    | {
        readonly provider: string | undefined
        readonly attempts: number
        /** Atomic USDC; undefined when it is not known. */
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
