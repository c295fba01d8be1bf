/** The numbers that JSON-RPC and Ethereum's clients have agreed on. */
export const rpcCodes = {
  parseError: -32700,
  invalidRequest: -32600,
  methodNotFound: -32601,
  invalidParams: -32602,
  internalError: -32603,
  rejected: -32000,
  unavailable: -32002,
  limitExceeded: -32005,
} as const

const unknownToMachine = -32004

/** An answer that is an error: the request was wrong, or the chain refuses it. */
export class RpcError extends Error {
  readonly code: number
  /** What a contract reverted with. */
  readonly data: string | undefined

  constructor(code: number, message: string, data?: string) {
    super(message)
    this.name = 'RpcError'
    this.code = code
    this.data = data
  }
}

/** What the machine threw, as a client may see it. Anything that is not the machine's own refusal is a bug of ours. */
export function rpcErrorOf(thrown: unknown): RpcError {
  if (thrown instanceof RpcError) return thrown
  const { code, message, data } = (thrown ?? {}) as { code?: unknown; message?: unknown; data?: unknown }
  if (typeof code !== 'number') return new RpcError(rpcCodes.internalError, `The chain failed: ${message ?? thrown}`)
  // Asked only for what it knows, the machine calls a method unknown when it cannot make sense of what it was given.
  if (code === unknownToMachine) return new RpcError(rpcCodes.invalidParams, 'The parameters make no sense.')
  // The machine repeats a wrong request as its data; only what a contract answered is of use to a client.
  return new RpcError(code, String(message), typeof data === 'string' ? data : undefined)
}
