import { type Failure, failureOf, JsonRpcClient, RpcStatusError } from './json-rpc.ts'
import { NodePace, type PaceClock, systemClock } from './pace.ts'

/** The URLs of `CHAIN_RPC_URL` that take calls, in order of preference. */
export function rpcUrlsOf(text: string): readonly string[] {
  return urlsOf(text).filter((url) => !isWebSocket(url))
}

/** The URL that announces heads and logs, if there is one. */
export function announcerUrlOf(text: string): string | undefined {
  return urlsOf(text).find(isWebSocket)
}

function urlsOf(text: string): readonly string[] {
  return text.split(',').map((url) => url.trim())
}

function isWebSocket(url: string): boolean {
  return /^wss?:/.test(url)
}

/** Without the keys that URLs may contain. */
export function rpcHostsOf(text: string): string {
  return rpcUrlsOf(text)
    .map((url) => URL.parse(url)?.host ?? 'its address')
    .join(', ')
}

export type NodesOptions = {
  readonly timeoutMs?: number | undefined
  readonly clock?: PaceClock | undefined
  /** The chain that all nodes must be of. Unset: that of the first that answers. */
  readonly chainId?: number | undefined
}

export type NodeHealth = { readonly host: string; readonly failure: Failure | 'other chain' | undefined }

/** A node that cannot be used is asked again after this time; one that is behind, after the pause. */
const unusableMs = 30_000
const behindMsMin = 250
const behindTriesMax = 5
/** Logs go before all other calls: with them a deposit is seen. There are few of them. */
export const logsSlackMs = -5_000
/** How long one call may be refused because of the rate. Its caller reports an error then, and tries again later. */
const rateMsMax = 60_000

type Node = {
  readonly host: string
  readonly client: JsonRpcClient
  readonly pace: NodePace
  isKnown: boolean
  failure: NodeHealth['failure']
  avoidedUntilMs: number
}

/**
 * All calls to the chain go through here: one pace for each node, and the next node when one refuses, lags or fails. A rate refusal is
 * never answered by more calls: the node rests.
 */
export class Nodes {
  readonly #nodes: readonly Node[]
  readonly #clock: PaceClock
  #chainId: number | undefined

  constructor(urls: string, { timeoutMs = 10_000, clock = systemClock, chainId }: NodesOptions = {}) {
    this.#clock = clock
    this.#chainId = chainId
    this.#nodes = rpcUrlsOf(urls).map((url) => ({
      host: new URL(url).host,
      client: new JsonRpcClient(url, { timeoutMs }),
      pace: new NodePace(clock),
      isKnown: false,
      failure: undefined,
      avoidedUntilMs: 0,
    }))
  }

  health(): readonly NodeHealth[] {
    return this.#nodes.map(({ host, failure }) => ({ host, failure }))
  }

  /**
   * Throws `RpcRefusalError` when a node refuses the call, or what kept the last node from answering. `slackMs`: how long the call may
   * wait for others while calls are limited.
   */
  async request(method: string, params: readonly unknown[], slackMs = 0): Promise<unknown> {
    return method === 'eth_getLogs' ? this.#logs(params[0] as LogFilter) : this.#ask(method, params, slackMs)
  }

  /** Resolves when logs may be read after one other call. */
  async untilLogs(): Promise<void> {
    await this.#choose(new Set()).pace.untilLogs()
  }

  /**
   * Nodes limit the logs of one answer, and anyone can fill blocks with logs: a range that is too large is read in halves. Otherwise
   * no later block could ever be read. A node that refuses everything gets one call for each halving.
   */
  async #logs(filter: LogFilter): Promise<unknown> {
    try {
      return await this.#ask('eth_getLogs', [filter], logsSlackMs)
    } catch (error) {
      const [first, last] = [Number(filter.fromBlock), Number(filter.toBlock)]
      if (failureOf(error) !== 'large' || !(first < last)) throw error
      const middle = Math.floor((first + last) / 2)
      const before = await this.#logs({ ...filter, toBlock: `0x${middle.toString(16)}` })
      const after = await this.#logs({ ...filter, fromBlock: `0x${(middle + 1).toString(16)}` })
      if (!Array.isArray(before) || !Array.isArray(after)) throw error
      return [...before, ...after]
    }
  }

  async #ask(method: string, params: readonly unknown[], slackMs: number): Promise<unknown> {
    const startMs = this.#clock.now()
    const failed = new Set<Node>()
    for (let behind = 0; ; ) {
      const node = this.#choose(failed)
      await node.pace.take(method, slackMs)
      try {
        await this.#requireSameChain(node)
        const result = await node.client.request(method, params)
        node.pace.answered()
        node.failure = undefined
        return result
      } catch (error) {
        const failure = failureOf(error)
        if (failure === 'refused' || failure === 'large') throw error
        this.#note(node, method, failure, error)
        if (failure === 'unusable') failed.add(node)
        if (failure === 'behind') behind += 1
        if (failed.size === this.#nodes.length || behind === behindTriesMax) throw error
        if (this.#clock.now() - startMs > rateMsMax) throw error
        if (failure === 'behind' && !this.#isFree(this.#choose(failed))) {
          await this.#clock.sleep(behindMsMin * 2 ** (behind - 1))
        }
      }
    }
  }

  /** The first node that is neither resting nor avoided; otherwise the one that is usable first. */
  #choose(failed: ReadonlySet<Node>): Node {
    const left = this.#nodes.filter((node) => !failed.has(node))
    return (
      left.find((node) => this.#isFree(node)) ??
      left.reduce((one, other) => (freeAt(other) < freeAt(one) ? other : one))
    )
  }

  #isFree(node: Node): boolean {
    return freeAt(node) <= this.#clock.now()
  }

  #note(node: Node, method: string, failure: Failure, error: unknown): void {
    node.failure = error instanceof OtherChainError ? 'other chain' : failure
    if (failure === 'rate') node.pace.refused(method, error instanceof RpcStatusError ? error.retryAfterMs : 0)
    else node.avoidedUntilMs = this.#clock.now() + (failure === 'behind' ? behindMsMin : unusableMs)
  }

  /** Nodes of two chains would answer with two truths. With one URL the callers compare. */
  async #requireSameChain(node: Node): Promise<void> {
    if (node.isKnown || this.#nodes.length === 1) return
    const chainId = Number(await node.client.request('eth_chainId', []))
    this.#chainId ??= chainId
    if (chainId !== this.#chainId) throw new OtherChainError(node.host, chainId, this.#chainId)
    node.isKnown = true
  }
}

function freeAt({ avoidedUntilMs, pace }: Node): number {
  return Math.max(avoidedUntilMs, pace.restsUntilMs)
}

/** A range of blocks as quantities of JSON-RPC, and more members. */
type LogFilter = { readonly fromBlock?: unknown; readonly toBlock?: unknown }

class OtherChainError extends Error {
  constructor(host: string, chainId: number, expected: number) {
    super(`${host} is a node of chain ${chainId}, not of chain ${expected}`)
    this.name = 'OtherChainError'
  }
}
