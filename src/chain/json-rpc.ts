import { Pool } from 'undici'
import { within } from '../process/deadline.ts'

export type JsonRpcOptions = {
  readonly timeoutMs: number
  readonly connectionsMax?: number
}

/** More than the largest answer that is asked for: the logs of a thousand full blocks. */
const answerBytesMax = 64 * 1024 * 1024

/**
 * JSON-RPC over HTTP, one call in one request, over connections that stay open. A call costs a fraction of what viem's own transport
 * takes for it, which is built on `fetch`; settlement and gateway look at the chain several times a second.
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

  /** The result. Throws `RpcRefusalError` with what the node has against it, or what went wrong on the way. */
  async request(method: string, params: readonly unknown[]): Promise<unknown> {
    const { status, text } = await within(this.#timeoutMs, (signal) => this.#post(method, params, signal))
    const answer = parseAnswer(text)
    if (answer?.error !== undefined && answer.error !== null) throw new RpcRefusalError(answer.error)
    if (status >= 300) throw new RpcStatusError(status)
    if (answer === undefined || !('result' in answer)) throw new Error('the node sent no answer')
    return answer.result
  }

  async #post(method: string, params: readonly unknown[], signal: AbortSignal) {
    this.#lastId += 1
    const { statusCode, body } = await this.#pool.request({
      method: 'POST',
      path: this.#path,
      headers: this.#headers,
      body: JSON.stringify({ jsonrpc: '2.0', id: this.#lastId, method, params }),
      signal,
    })
    return { status: statusCode, text: await body.text() }
  }
}

type Answer = { readonly result?: unknown; readonly error?: unknown }

function parseAnswer(text: string): Answer | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : undefined
  } catch {
    return undefined
  }
}

/** Providers put keys into addresses, also before the host. */
function basicAuthorization(username: string, password: string): string {
  const credentials = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`
  return `Basic ${Buffer.from(credentials).toString('base64')}`
}

/** The node answered, and refused the call. */
export class RpcRefusalError extends Error {
  readonly code: number
  /** Of a call that reverts: what the contract said. */
  readonly data: unknown

  constructor(error: unknown) {
    const { code, message, data } = error as { readonly code?: unknown; readonly message?: unknown; data?: unknown }
    super(typeof message === 'string' ? message : 'the node refused the call without a reason')
    this.name = 'RpcRefusalError'
    this.code = typeof code === 'number' ? code : 0
    this.data = data
  }
}

/** Something else than JSON-RPC answered: a proxy on the way, or a node that wants a key. */
class RpcStatusError extends Error {
  readonly status: number
  constructor(status: number) {
    super(`the node answers ${status}`)
    this.name = 'RpcStatusError'
    this.status = status
  }
}
