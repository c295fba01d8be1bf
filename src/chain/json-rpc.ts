import { errors, Pool } from 'undici'
import { within } from '../process/deadline.ts'

export type JsonRpcOptions = {
  readonly timeoutMs: number
  readonly connectionsMax?: number
}

/** More than the largest expected answer: the logs of a thousand full blocks. */
const answerBytesMax = 64 * 1024 * 1024

/**
 * JSON-RPC over HTTP with keep-alive, one call per request. Much cheaper than viem's own transport, which uses `fetch`: settlement and
 * gateway read the chain several times a second.
 */
export class JsonRpcClient {
  readonly #pool: Pool
  readonly #path: string
  readonly #headers: Readonly<Record<string, string>>
  readonly #timeoutMs: number
  #lastId = 0

  constructor(url: string, { timeoutMs, connectionsMax = 8 }: JsonRpcOptions) {
    const { origin, pathname, search, username, password } = new URL(url)
    this.#path = `${pathname}${search}`
    this.#headers = {
      'content-type': 'application/json',
      accept: 'application/json',
      ...(username === '' && password === '' ? {} : { authorization: basicAuthorization(username, password) }),
    }
    this.#timeoutMs = timeoutMs
    this.#pool = new Pool(origin, {
      connections: connectionsMax,
      connect: { timeout: timeoutMs },
      maxResponseSize: answerBytesMax,
    })
  }

  /** Throws `RpcRefusalError` when the node refuses the call, `RpcStatusError`, or the network error. */
  async request(method: string, params: readonly unknown[]): Promise<unknown> {
    const { status, text, retryAfterMs } = await within(this.#timeoutMs, (signal) => this.#post(method, params, signal))
    if (status === 429) throw new RpcStatusError(status, retryAfterMs)
    const answer = parseAnswer(text)
    if (answer?.error !== undefined && answer.error !== null) throw new RpcRefusalError(answer.error)
    if (status >= 300) throw new RpcStatusError(status)
    if (answer === undefined || !('result' in answer)) throw new Error('the node sent no answer')
    return answer.result
  }

  async #post(method: string, params: readonly unknown[], signal: AbortSignal) {
    this.#lastId += 1
    const { statusCode, headers, body } = await this.#pool.request({
      method: 'POST',
      path: this.#path,
      headers: this.#headers,
      body: JSON.stringify({ jsonrpc: '2.0', id: this.#lastId, method, params }),
      signal,
    })
    const seconds = Number(headers['retry-after'])
    return { status: statusCode, text: await body.text(), retryAfterMs: seconds > 0 ? seconds * 1_000 : 0 }
  }
}

/**
 * What a failed call means for the next one. `rate`: ask less. `behind`: this node does not have the block yet, another one may.
 * `large`: the answer is too large, ask for fewer blocks. `unusable`: the node, or the way to it. `refused`: any node would refuse.
 */
export type Failure = 'rate' | 'behind' | 'large' | 'unusable' | 'refused'

export function failureOf(error: unknown): Failure {
  if (error instanceof errors.ResponseExceededMaxSizeError) return 'large'
  if (error instanceof RpcStatusError)
    return error.status === 429 ? 'rate' : error.status === 413 ? 'large' : 'unusable'
  if (!(error instanceof RpcRefusalError)) return 'unusable'
  const failure = failuresOfCodes.get(error.code)
  // Some nodes have no code of their own for too many logs, or use that of their rate. A range that is never halved is never read.
  const isAboutCode = failure !== undefined && error.code !== limitExceeded
  return !isAboutCode && /\b(block range|results?|logs)\b/i.test(error.message) ? 'large' : (failure ?? 'refused')
}

const limitExceeded = -32_005
const failuresOfCodes: ReadonlyMap<number, Failure> = new Map([
  [429, 'rate'],
  [limitExceeded, 'rate'],
  [-32_011, 'rate'],
  [-32_014, 'behind'],
  [-32_012, 'large'],
  [-32_600, 'large'],
  [-32_602, 'large'],
  [-32_002, 'unusable'],
  [-32_603, 'unusable'],
] as const)

type Answer = { readonly result?: unknown; readonly error?: unknown }

function parseAnswer(text: string): Answer | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : undefined
  } catch {
    return undefined
  }
}

/** Node providers put API keys into the URL, also as user and password. */
function basicAuthorization(username: string, password: string): string {
  const credentials = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`
  return `Basic ${Buffer.from(credentials).toString('base64')}`
}

/** The node answered, and refused the call. */
export class RpcRefusalError extends Error {
  readonly code: number
  /** The revert data of a call that reverts. */
  readonly data: unknown

  constructor(error: unknown) {
    const { code, message, data } = error as { readonly code?: unknown; readonly message?: unknown; data?: unknown }
    super(typeof message === 'string' ? message : 'the node refused the call without a reason')
    this.name = 'RpcRefusalError'
    this.code = typeof code === 'number' ? code : 0
    this.data = data
  }
}

/** The answer was not JSON-RPC: a proxy, or a node that requires a key. */
export class RpcStatusError extends Error {
  readonly status: number
  /** 0 when the node does not say. */
  readonly retryAfterMs: number

  constructor(status: number, retryAfterMs = 0) {
    super(`the node answers ${status}`)
    this.name = 'RpcStatusError'
    this.status = status
    this.retryAfterMs = retryAfterMs
  }
}
