import type { Method } from './methods.ts'
import { RpcError, rpcCodes, rpcErrorOf } from './rpc-error.ts'

type Id = string | number | null
type Answer = { readonly jsonrpc: '2.0'; readonly id: Id } & (
  | { readonly result: unknown }
  | { readonly error: { readonly code: number; readonly message: string; readonly data?: string } }
)

/** The same limit as on Arc. */
const batchMax = 100

/**
 * Answers one JSON-RPC request or a batch. A batch runs sequentially, so its transactions are sent in order. Returns undefined when
 * there is no response, as for a notification.
 */
export async function answerJsonRpc(body: string, methods: ReadonlyMap<string, Method>): Promise<string | undefined> {
  const answer = await answerBody(body, methods)
  return answer === undefined ? undefined : JSON.stringify(answer)
}

async function answerBody(body: string, methods: ReadonlyMap<string, Method>) {
  let parsed: unknown
  try {
    parsed = JSON.parse(body)
  } catch {
    return failure(null, new RpcError(rpcCodes.parseError, 'The body is not JSON.'))
  }
  return Array.isArray(parsed) ? answerBatch(parsed, methods) : answerOne(parsed, methods)
}

async function answerBatch(requests: readonly unknown[], methods: ReadonlyMap<string, Method>) {
  if (requests.length === 0) return failure(null, new RpcError(rpcCodes.invalidRequest, 'The batch is empty.'))
  if (requests.length > batchMax) {
    const message = `A batch may hold ${batchMax} requests; this one holds ${requests.length}.`
    return failure(null, new RpcError(rpcCodes.invalidRequest, message))
  }
  const answers: Answer[] = []
  for (const request of requests) {
    const answer = await answerOne(request, methods)
    if (answer !== undefined) answers.push(answer)
  }
  return answers.length === 0 ? undefined : answers
}

async function answerOne(request: unknown, methods: ReadonlyMap<string, Method>): Promise<Answer | undefined> {
  const id = idOf(request)
  try {
    const result = await call(request, methods)
    return id === undefined ? undefined : { jsonrpc: '2.0', id, result: result ?? null }
  } catch (error) {
    // An invalid request gets an error even without an id.
    if (id === undefined && isRequest(request)) return undefined
    return failure(id ?? null, rpcErrorOf(error))
  }
}

async function call(request: unknown, methods: ReadonlyMap<string, Method>): Promise<unknown> {
  if (!isRequest(request)) {
    throw new RpcError(rpcCodes.invalidRequest, 'A request is {"jsonrpc": "2.0", "id", "method", "params"}.')
  }
  const { method, params = [] } = request
  const known = methods.get(method)
  if (known === undefined) {
    throw new RpcError(rpcCodes.methodNotFound, `the method ${method.slice(0, 64)} does not exist/is not available`)
  }
  if (!Array.isArray(params)) throw new RpcError(rpcCodes.invalidParams, 'params must be an array.')
  return known(params)
}

function isRequest(request: unknown): request is { method: string; params?: unknown } {
  if (typeof request !== 'object' || request === null) return false
  const { jsonrpc, method } = request as Readonly<Record<string, unknown>>
  return jsonrpc === '2.0' && typeof method === 'string'
}

/** Undefined for a notification. */
function idOf(request: unknown): Id | undefined {
  if (typeof request !== 'object' || request === null) return undefined
  const { id } = request as Readonly<Record<string, unknown>>
  return typeof id === 'string' || typeof id === 'number' || id === null || id === undefined ? id : null
}

function failure(id: Id, { code, message, data }: RpcError): Answer {
  return { jsonrpc: '2.0', id, error: { code, message, ...(data !== undefined && { data }) } }
}
