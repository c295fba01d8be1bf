/** Error codes of JSON-RPC and of Ethereum's clients. */
export const rpcCodes = {
  reverted: 3,
  parseError: -32700,
  invalidRequest: -32600,
  methodNotFound: -32601,
  invalidParams: -32602,
  internalError: -32603,
  rejected: -32000,
  unavailable: -32002,
  limitExceeded: -32005,
  tooManyCalls: -32011,
  rangeTooLarge: -32012,
  headUnavailable: -32014,
} as const

const unknownToMachine = -32004

/** An error response: the request was wrong, or the chain refuses it. */
export class RpcError extends Error {
  readonly code: number
  /** The revert data of a contract. */
  readonly data: string | undefined

  constructor(code: number, message: string, data?: string) {
    super(message)
    this.name = 'RpcError'
    this.code = code
    this.data = data
  }
}

/** Converts an exception of the EVM for clients. An exception that is not the EVM's own refusal is a bug of ours. */
export function rpcErrorOf(thrown: unknown): RpcError {
  if (thrown instanceof RpcError) return thrown
  const { code, message, data } = (thrown ?? {}) as { code?: unknown; message?: unknown; data?: unknown }
  if (typeof code !== 'number') return new RpcError(rpcCodes.internalError, `The chain failed: ${message ?? thrown}`)
  // We call only methods that the EVM knows. It then reports "unknown method" when it cannot parse the parameters.
  if (code === unknownToMachine) return new RpcError(rpcCodes.invalidParams, 'The parameters make no sense.')
  // The EVM repeats an invalid request as data; only a contract's revert data is useful to clients.
  return new RpcError(code, String(message), typeof data === 'string' ? data : undefined)
}
