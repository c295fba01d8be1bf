import type { Address, Hash, Hex } from 'viem'
import { Announcements } from './announcements.ts'
import { RpcRefusalError } from './json-rpc.ts'
import { logsSlackMs, type NodeHealth, Nodes, type NodesOptions } from './nodes.ts'

export type TransactionReceipt = {
  readonly hash: Hash
  readonly block: bigint
  readonly isSuccess: boolean
  readonly gasUsed: bigint
  readonly gasPrice: bigint
}

export type RawLog = {
  readonly address: Address
  readonly block: bigint
  readonly index: number
  readonly blockHash: Hash
  readonly transactionHash: Hash
  readonly topics: readonly Hex[]
  readonly data: Hex
}

/** Topics by position: one of several, a certain one, or any. */
export type LogTopics = readonly (readonly Hex[] | Hex | null)[]

/** Blocks of one search of logs: far below the limits of public nodes. */
export const blocksMax = 1_000n

/** The ranges, first and last block, in which logs are read after a known block up to the head. */
export function* blockRanges(known: bigint, head: bigint): Generator<readonly [first: bigint, last: bigint]> {
  for (let first = known + 1n; first <= head; first += blocksMax) {
    const last = first + blocksMax - 1n
    yield [first, last < head ? last : head]
  }
}

/**
 * Client of a chain node, or of several at one chain. They are not trusted: the form of answers is checked here, their plausibility by
 * the callers. Anything else is a `ChainNodeError`. A process has one, so that all its calls share the nodes' limits.
 */
export class ChainNode {
  readonly #nodes: Nodes
  #announcements: Announcements | undefined

  /** Several URLs are separated by commas. */
  constructor(urls: string, options: NodesOptions = {}) {
    this.#nodes = new Nodes(urls, options)
  }

  /** From now on `height` costs no call while the node at this WebSocket URL announces heads of the chain, and `watchLogs` has effect. */
  listen(url: string, chainId: number): Announcements {
    this.#announcements = new Announcements(url, chainId)
    return this.#announcements
  }

  /**
   * Passes on new logs as soon as a node announces them. Some may never be announced, so they must be read too. `group` is a number from
   * 0; the topics of a group can be replaced.
   */
  watchLogs(group: number, address: Address, topics: LogTopics, onLog: (log: RawLog) => void): void {
    const readAndPass = (value: unknown) => {
      try {
        const log = readLog(value)
        if (log.address === address && (value as { readonly removed?: unknown }).removed !== true) onLog(log)
      } catch {
        // Not such a log. If there was one, it is found when the logs are read.
      }
    }
    this.#announcements?.watchLogs(group, { filter: { address, topics }, onLog: readAndPass })
  }

  health(): readonly NodeHealth[] {
    return [...this.#nodes.health(), ...(this.#announcements === undefined ? [] : [this.#announcements.health()])]
  }

  async chainId(): Promise<number> {
    return Number(readQuantity(await this.request('eth_chainId', [])))
  }

  /** The latest final block. */
  async finalizedHeight(): Promise<bigint> {
    const block = readObject(await this.request('eth_getBlockByNumber', ['finalized', false]))
    return readQuantity(block.number)
  }

  async height(): Promise<bigint> {
    return this.#announcements?.height ?? readQuantity(await this.request('eth_blockNumber', []))
  }

  /** `height` for a range of logs that is read next: waits until the limits allow the read, so that the head is not old by then. */
  async heightForLogs(): Promise<bigint> {
    await this.#nodes.untilLogs()
    return this.#announcements?.height ?? readQuantity(await this.request('eth_blockNumber', [], logsSlackMs))
  }

  async gasPrice(): Promise<bigint> {
    return readQuantity(await this.request('eth_gasPrice', []))
  }

  /** The base fee of the latest block. */
  async baseFee(): Promise<bigint> {
    const block = readObject(await this.request('eth_getBlockByNumber', ['latest', false]))
    return readQuantity(block.baseFeePerGas)
  }

  async blockTime(block: bigint): Promise<Date> {
    const found = readObject(await this.request('eth_getBlockByNumber', [hexOf(block), false]))
    const time = new Date(Number(readQuantity(found.timestamp)) * 1000)
    if (Number.isNaN(time.getTime())) throw new ChainNodeError('a block without a time')
    return time
  }

  /** The contracts' logs of a range of blocks, in order, without duplicates. Logs that were not asked for are left out. */
  async logs(
    addresses: readonly Address[],
    first: bigint,
    last: bigint,
    topics?: LogTopics,
  ): Promise<readonly RawLog[]> {
    const filter = { address: addresses, fromBlock: hexOf(first), toBlock: hexOf(last), ...(topics && { topics }) }
    const answer = await this.request('eth_getLogs', [filter])
    if (!Array.isArray(answer)) throw new ChainNodeError('eth_getLogs: not a list')
    const logs = answer
      .map(readLog)
      .filter(({ address, block }) => addresses.includes(address) && block >= first && block <= last)
    return withoutCopies(logs.sort(byPlace))
  }

  async receipt(hash: Hash): Promise<TransactionReceipt | undefined> {
    const answer = await this.request('eth_getTransactionReceipt', [hash])
    if (answer === null) return undefined
    const fields = readObject(answer)
    if (readHex(fields.transactionHash) !== hash) throw new ChainNodeError('a receipt of another transaction')
    return {
      hash,
      block: readQuantity(fields.blockNumber),
      isSuccess: readQuantity(fields.status) === 1n,
      gasUsed: readQuantity(fields.gasUsed),
      gasPrice: readQuantity(fields.effectiveGasPrice),
    }
  }

  /** The call data of a transaction in the chain. */
  async transactionData(hash: Hash): Promise<Hex> {
    const fields = readObject(await this.request('eth_getTransactionByHash', [hash]))
    return readHex(fields.input)
  }

  /** Number of transactions of the address up to a block. */
  async transactionCount(address: Address, block: bigint | 'latest'): Promise<bigint> {
    const tag = block === 'latest' ? block : hexOf(block)
    return readQuantity(await this.request('eth_getTransactionCount', [address, tag]))
  }

  async coinBalance(address: Address): Promise<bigint> {
    return readQuantity(await this.request('eth_getBalance', [address, 'latest']))
  }

  async call(to: Address, data: Hex, block: bigint | 'latest' = 'latest'): Promise<Hex> {
    return readHex(await this.request('eth_call', [{ to, data }, block === 'latest' ? block : hexOf(block)]))
  }

  /** Throws `CallRevertsError` when the call would revert. */
  async estimateGas(from: Address, to: Address, data: Hex): Promise<bigint> {
    try {
      return readQuantity(await this.request('eth_estimateGas', [{ from, to, data }]))
    } catch (error) {
      const revert = revertDataOf(error)
      throw revert === undefined ? error : new CallRevertsError(revert, error)
    }
  }

  async sendRawTransaction(raw: Hex): Promise<void> {
    await this.request('eth_sendRawTransaction', [raw])
  }

  /** For methods that have no function here. Returns the unchecked answer. `slackMs`: how long it may wait for other calls. */
  async request(method: string, params: readonly unknown[], slackMs?: number): Promise<unknown> {
    try {
      return await this.#nodes.request(method, params, slackMs)
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error)
      throw new ChainNodeError(`${method}: ${text.split('\n', 1)[0]!.slice(0, 200)}`, error)
    }
  }
}

function readLog(value: unknown): RawLog {
  const fields = readObject(value)
  if (fields.removed === true) throw new ChainNodeError('a final log is marked as removed')
  if (!Array.isArray(fields.topics)) throw new ChainNodeError('a log without topics')
  return {
    address: readHex(fields.address),
    block: readQuantity(fields.blockNumber),
    index: Number(readQuantity(fields.logIndex)),
    blockHash: readHex(fields.blockHash),
    transactionHash: readHex(fields.transactionHash),
    topics: fields.topics.map(readHex),
    data: readHex(fields.data),
  }
}

function byPlace(one: RawLog, other: RawLog): number {
  return one.block === other.block ? one.index - other.index : one.block < other.block ? -1 : 1
}

/** Removes duplicates. Throws for two different logs with the same position. */
function withoutCopies(logs: readonly RawLog[]): readonly RawLog[] {
  return logs.filter((log, place) => {
    const previous = logs[place - 1]
    if (previous === undefined || previous.block !== log.block) return true
    if (previous.blockHash !== log.blockHash) throw new ChainNodeError(`two different blocks have number ${log.block}`)
    if (previous.index !== log.index) return true
    if (previous.data === log.data && previous.topics.join() === log.topics.join()) return false
    throw new ChainNodeError(`two logs at ${log.block}:${log.index}`)
  })
}

function readObject(value: unknown): Readonly<Record<string, unknown>> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>
  throw new ChainNodeError('an answer without its fields')
}

function readQuantity(value: unknown): bigint {
  if (typeof value === 'string' && /^0x[0-9a-fA-F]{1,64}$/.test(value)) return BigInt(value)
  throw new ChainNodeError(`not a number: ${String(value).slice(0, 40)}`)
}

function readHex(value: unknown): Hex {
  if (typeof value === 'string' && /^0x[0-9a-fA-F]*$/.test(value)) return value.toLowerCase() as Hex
  throw new ChainNodeError(`not hex: ${String(value).slice(0, 40)}`)
}

function hexOf(number: bigint): Hex {
  return `0x${number.toString(16)}`
}

/** The revert data, if the error is a revert. */
function revertDataOf(error: unknown): Hex | undefined {
  for (let cause: unknown = error; cause instanceof Error; cause = cause.cause) {
    if (!(cause instanceof RpcRefusalError)) continue
    const { data } = cause
    const text = typeof data === 'object' && data !== null ? (data as { data?: unknown }).data : data
    if (typeof text === 'string' && /^0x[0-9a-fA-F]*$/.test(text)) return text as Hex
    if (cause.code === 3 || /revert/i.test(cause.message)) return '0x'
  }
  return undefined
}

/** The node did not answer, or sent an implausible answer. Implies nothing about the chain; retry later. */
export class ChainNodeError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.name = 'ChainNodeError'
  }
}

/** The contract would revert this call now. */
export class CallRevertsError extends Error {
  readonly data: Hex
  constructor(data: Hex, cause: unknown) {
    super(`the call would revert: ${(cause as Error).message}`, { cause })
    this.name = 'CallRevertsError'
    this.data = data
  }
}
