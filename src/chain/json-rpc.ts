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

  /** Throws `RpcRefusalError` when the node refuses the call, or the network error. */
  async request(method: string, params: readonly unknown[]): Promise<unknown> {
    return method === 'eth_getLogs' ? this.#logs(params[0] as LogFilter) : this.#ask(method, params)
  }

  /**
   * Nodes limit the logs of one answer, and anyone can fill blocks with logs: a range that the node refuses is read in halves. Otherwise
   * no later block could ever be read. A node that refuses everything gets one call for each halving.
   */
  async #logs(filter: LogFilter): Promise<unknown> {
    try {
      return await this.#ask('eth_getLogs', [filter])
    } catch (error) {
      const [first, last] = [Number(filter.fromBlock), Number(filter.toBlock)]
      if (!isPerhapsTooMuch(error) || !(first < last)) throw error
      const middle = Math.floor((first + last) / 2)
      const before = await this.#logs({ ...filter, toBlock: `0x${middle.toString(16)}` })
      const after = await this.#logs({ ...filter, fromBlock: `0x${(middle + 1).toString(16)}` })
      if (!Array.isArray(before) || !Array.isArray(after)) throw error
      return [...before, ...after]
    }
  }

  async #ask(method: string, params: readonly unknown[]): Promise<unknown> {
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

/** A range of blocks as quantities of JSON-RPC, and more members. */
type LogFilter = { readonly fromBlock?: unknown; readonly toBlock?: unknown }

/** Nodes have no common error code for too many logs. */
function isPerhapsTooMuch(error: unknown): boolean {
  if (error instanceof RpcRefusalError) return true
  return error instanceof RpcStatusError ? error.status === 413 : error instanceof errors.ResponseExceededMaxSizeError
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
class RpcStatusError extends Error {
  readonly status: number
  constructor(status: number) {
    super(`the node answers ${status}`)
    this.name = 'RpcStatusError'
    this.status = status
  }
}
