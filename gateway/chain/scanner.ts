import { blockRanges, type ChainNode, ChainNodeError } from '../../src/chain/node.ts'
import type { Database } from '../../src/db/database.ts'
import type { OnAlarm } from '../alarm.ts'
import type { Failpoint } from '../failpoints.ts'
import type { GatewayTerms } from '../terms.ts'
import { applyEvents } from './apply-events.ts'
import { type GatewayEvent, LogsMissingError, readEvents } from './events.ts'
import { type ChainState, readChainState, rewind } from './state.ts'

export type ScannerOptions = {
  readonly database: Database
  readonly node: ChainNode
  readonly terms: GatewayTerms
  readonly clock: () => number
  readonly recheckMs: number
  /** Interval between writes that record that the database is at the head of the chain. */
  readonly noteHeadMs: number
  readonly onAlarm: OnAlarm
  readonly failpoint: Failpoint
}

/** Reads the contract's final logs, block by block, into the database. */
export class Scanner {
  readonly #options: ScannerOptions
  #recheckTo: bigint | undefined
  #recheckedAtMs = 0
  #notedHeadAtMs = Number.NEGATIVE_INFINITY
  #isChainKnown = false

  constructor(options: ScannerOptions) {
    this.#options = options
  }

  /** Brings the database up to the finalized head, and returns its number. */
  async scan(): Promise<bigint> {
    const { database, node, onAlarm } = this.#options
    await this.#requireChain()
    const head = await node.finalizedHeight()
    const state = await readChainState(database)
    // This node is behind the previous one, or the previous one was ahead of the chain: read the blocks above its head again later.
    if (head < state.processedHeight) await rewind(database, head)
    try {
      await this.#scanTo(state, head)
      await this.#recheck()
    } catch (error) {
      this.#isChainKnown = false
      if (!(error instanceof LogsMissingError)) throw error
      onAlarm({ code: 'logs_missing', message: error.message })
      await this.#rewindToLastBatch()
      throw error
    }
    return head
  }

  /** A node of another chain would return no logs for our blocks, which would look like no activity. */
  async #requireChain(): Promise<void> {
    const { node, terms, onAlarm } = this.#options
    if (this.#isChainKnown) return
    const chainId = await node.chainId()
    this.#isChainKnown = chainId === terms.chainId
    if (this.#isChainKnown) return
    onAlarm({ code: 'wrong_chain', message: `The node is on chain ${chainId}; the contract is on ${terms.chainId}.` })
    throw new ChainNodeError(`the node is on chain ${chainId}`)
  }

  async #scanTo(state: ChainState, head: bigint): Promise<void> {
    for (const [first, last] of blockRanges(state.processedHeight, head)) {
      await this.#apply(first, last, `processed_height = ${last}`)
    }
    await this.#noteHead(head)
  }

  /** Not at every poll: each write is a commit. */
  async #noteHead(head: bigint): Promise<void> {
    const { database, clock, noteHeadMs } = this.#options
    if (clock() - this.#notedHeadAtMs < noteHeadMs) return
    await database.query('update chain set at_head_since = clock_timestamp() where processed_height = $1', [head])
    this.#notedHeadAtMs = clock()
  }

  /**
   * Reads the blocks up to the previous recheck a second time. There may be many nodes behind one address, and a node that does not
   * have a block yet returns no logs instead of an error.
   */
  async #recheck(): Promise<void> {
    const { database, clock, recheckMs } = this.#options
    if (clock() - this.#recheckedAtMs < recheckMs) return
    const { processedHeight, recheckedHeight } = await readChainState(database)
    const target = this.#recheckTo ?? recheckedHeight
    for (const [first, last] of blockRanges(recheckedHeight, target)) {
      await this.#apply(first, last, `rechecked_height = ${last}`)
    }
    this.#recheckTo = processedHeight
    this.#recheckedAtMs = clock()
  }

  async #apply(first: bigint, last: bigint, progress: string): Promise<void> {
    const { node, database, terms, onAlarm, failpoint } = this.#options
    const events = readEvents(await node.logs([terms.wallet], first, last))
    const blockTimes = await this.#blockTimes(events)
    const alarms = await database.transaction(async (connection) => {
      const raised = await applyEvents(connection, events, blockTimes)
      await connection.query(`update chain set ${progress}`)
      if (events.length > 0) failpoint('events_applied')
      return raised
    })
    for (const alarm of alarms) onAlarm(alarm)
  }

  /** Times of the blocks that contain deposits. */
  async #blockTimes(events: readonly GatewayEvent[]): Promise<ReadonlyMap<bigint, Date>> {
    const blocks = new Set(events.flatMap(({ kind, block }) => (kind === 'Deposited' ? [block] : [])))
    const times = new Map<bigint, Date>()
    for (const block of blocks) times.set(block, await this.#options.node.blockTime(block))
    return times
  }

  async #rewindToLastBatch(): Promise<void> {
    const { database } = this.#options
    const [last] = await database.query<{ block: bigint }>(
      `select block from events where kind = 'BatchSettled' order by block desc limit 1`,
    )
    const { firstBlock } = await readChainState(database)
    await rewind(database, (last?.block ?? firstBlock) - 1n)
  }
}
