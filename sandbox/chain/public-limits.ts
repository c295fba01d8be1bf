import { numberToHex } from 'viem'
import type { Method } from './methods.ts'
import { RpcError, rpcCodes } from './rpc-error.ts'

/** The newest block of each moment, for backends that lag behind. */
export type Heads = { readonly blockNumber: number; readonly seenMs: number }[]

/** Arc's public nodes in autumn 2026: about two calls a second and one search of logs in two seconds. */
const callsPerSecond = 2
const searchesPerSecond = 0.5
/** How far each backend lags behind the chain. Calls go to them in turn. */
const backendLagMs = [0, 1_000, 2_000]

/** Where a method has its block, among those whose answer depends on the head. */
const blockPlaces: Readonly<Record<string, number>> = {
  eth_getBlockByNumber: 0,
  eth_call: 1,
  eth_estimateGas: 1,
  eth_getBalance: 1,
  eth_getCode: 1,
  eth_getTransactionCount: 1,
  eth_getStorageAt: 2,
}
const headTags: readonly unknown[] = [undefined, null, 'latest', 'safe', 'finalized']

/** The limits of Arc's public RPC: paces that refuse bursts, and several backends with different heads. */
export class PublicLimits {
  readonly #clock: () => number
  readonly #heads: Heads
  readonly #calls: Pace
  readonly #searches: Pace
  #turn = 0

  constructor(clock: () => number, heads: Heads) {
    this.#clock = clock
    this.#heads = heads
    this.#calls = new Pace(callsPerSecond, clock)
    this.#searches = new Pace(searchesPerSecond, clock)
  }

  /** False: the call is refused with status 429. */
  admits(): boolean {
    return this.#calls.admits()
  }

  /** The methods as the next backend answers them. */
  apply(methods: ReadonlyMap<string, Method>): ReadonlyMap<string, Method> {
    const limited = [...methods].map(([name, method]) => [name, this.#limited(name, method)] as const)
    return new Map(limited)
  }

  #limited(name: string, method: Method): Method {
    return async (params) => {
      if (name === 'eth_getLogs' && !this.#searches.admits()) {
        throw new RpcError(rpcCodes.tooManyCalls, 'request limit reached')
      }
      const head = this.#nextHead()
      if (head === undefined) return method(params)
      if (name === 'eth_blockNumber') return numberToHex(head)
      if (name === 'eth_getLogs') return method([filterUpTo(params[0], head), ...params.slice(1)])
      if (name === 'eth_getTransactionReceipt' || name === 'eth_getTransactionByHash') {
        const found = (await method(params)) as { readonly blockNumber?: unknown } | null
        return found !== null && numberOf(found.blockNumber, head) > head ? null : found
      }
      const place = blockPlaces[name]
      return place === undefined ? method(params) : method(params.with(place, blockUpTo(params[place], head)))
    }
  }

  /** Undefined: the head of the chain. */
  #nextHead(): number | undefined {
    const lagMs = backendLagMs[this.#turn]!
    this.#turn = (this.#turn + 1) % backendLagMs.length
    const latestMs = this.#clock() - lagMs
    const visible = this.#heads.findLast(({ seenMs }) => seenMs <= latestMs)
    return lagMs === 0 ? undefined : visible?.blockNumber
  }
}

/** A pace with room for one call more. */
class Pace {
  readonly #perSecond: number
  readonly #clock: () => number
  #room: number
  #sinceMs: number

  constructor(perSecond: number, clock: () => number) {
    this.#perSecond = perSecond
    this.#clock = clock
    this.#room = Math.max(1, perSecond)
    this.#sinceMs = clock()
  }

  admits(): boolean {
    const nowMs = this.#clock()
    const earned = ((nowMs - this.#sinceMs) / 1000) * this.#perSecond
    this.#room = Math.min(Math.max(1, this.#perSecond), this.#room + earned)
    this.#sinceMs = nowMs
    if (this.#room < 1) return false
    this.#room -= 1
    return true
  }
}

/** A block as this backend knows it. Throws if it does not exist there yet. */
function blockUpTo(block: unknown, head: number): unknown {
  if (headTags.includes(block)) return numberToHex(head)
  if (numberOf(block, head) > head) {
    throw new RpcError(rpcCodes.headUnavailable, `block ${String(block)} is not available; the head is ${head}`)
  }
  return block
}

function filterUpTo(filter: unknown, head: number): unknown {
  const { blockHash, fromBlock, toBlock, ...rest } = (filter ?? {}) as Readonly<Record<string, unknown>>
  if (blockHash !== undefined) return filter
  return { ...rest, fromBlock: blockUpTo(fromBlock, head), toBlock: blockUpTo(toBlock, head) }
}

function numberOf(block: unknown, otherwise: number): number {
  return typeof block === 'string' && /^0x[0-9a-f]+$/i.test(block) ? Number(block) : otherwise
}
