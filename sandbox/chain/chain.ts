import { join } from 'node:path'
import { type Address, type Hash, type Hex, numberToHex } from 'viem'
import { baseFeeWei, type Evm, openEvm } from './evm.ts'
import { Faucet } from './faucet.ts'
import { type ChainContracts, foundingOf, hashOf } from './founding.ts'
import {
  type ChainAddresses,
  type Change,
  type FoundingEntry,
  type FoundingStep,
  Journal,
  JournalBrokenError,
  type JournalEntry,
} from './journal.ts'
import { type BlockRange, type Log, type LogFilter, OneBalance } from './one-balance.ts'
import { RpcError, rpcCodes, rpcErrorOf } from './rpc-error.ts'

export type ChainOptions = {
  readonly dataDir: string
  readonly chainId: number
  readonly contracts: ChainContracts
  /** Addresses that pay gas for others, such as the relayer. The chain gives them USDC when it first sees them. */
  readonly gasHolders: readonly Address[]
  /** Milliseconds since 1970. */
  readonly clock: () => number
  /** Called when the chain cannot continue; only a restart helps. */
  readonly onFailure: (error: Error) => void
  /** Called at points where a crash has a distinct outcome: between journal and EVM, and after both. */
  readonly onStep: (step: 'appended' | 'applied') => void
}

export type ChainProgress = {
  readonly state: 'replaying' | 'ready' | 'failed'
  readonly blockNumber: number
  readonly entriesReplayed: number
  readonly journalBytesRead: number
  readonly journalBytes: number
}

type Head = { readonly number: number; readonly hash: Hash; readonly time: number }

const baseFee = numberToHex(baseFeeWei)
/** A hundred USDC: enough for some thousands of batches. */
const gasGrantAtomic = 100_000_000n
const writesWaitingMax = 1_000
const minedBlocksMax = 10_000
const advanceSecondsMax = 10 * 365 * 86_400

/**
 * The chain: an EVM in memory and a durable journal. There is one writer. A change is on disk before the EVM executes it, so
 * everything that a client was told can be restored. The journal contains everything a block depends on, so a replay gives the same
 * blocks with the same hashes.
 */
export class Chain {
  readonly addresses: ChainAddresses
  /** Whether the contracts on chain are those of this start. A chain keeps the contracts it was created with. */
  readonly contractsAreCurrent: boolean
  /** Resolves when the journal is replayed and the chain has its previous state. */
  readonly ready: Promise<void>

  readonly #options: ChainOptions
  readonly #journal: Journal
  readonly #journalBytes: number
  readonly #balance: OneBalance
  readonly #faucet: Faucet
  #evm: Evm | undefined
  #head: Head = { number: 0, hash: '0x', time: 0 }
  /** The last block without its transactions, in JSON-RPC form. */
  #headBlock: unknown
  /** How far the chain's clock was advanced. */
  #aheadSeconds = 0
  /** The time that the EVM's clock was set to for read calls. */
  #presentTime = 0
  #state: ChainProgress['state'] | 'closed' = 'replaying'
  #entriesReplayed = 0
  #lastWrite: Promise<unknown> = Promise.resolve()
  #writesWaiting = 0

  private constructor(options: ChainOptions, journal: Journal, opening: Opening) {
    const { founding, isNew, entries, journalBytes } = opening
    this.#options = options
    this.#journal = journal
    this.#journalBytes = journalBytes
    this.addresses = founding.addresses
    this.#balance = new OneBalance((...call) => this.#request(...call), founding.addresses)
    this.#faucet = new Faucet({
      chainId: options.chainId,
      usdc: founding.addresses.usdc,
      request: (...call) => this.#request(...call),
      send: (raw) => this.#send(raw),
    })
    this.contractsAreCurrent = founding.contractsHash === hashOf(options.contracts)
    this.ready = this.#start(founding, isNew, entries)
    this.ready.catch((error: Error) => this.#fail(error))
  }

  /** Reads the journal's first line, or creates it. The rest is replayed in the background. */
  static async open(options: ChainOptions): Promise<Chain> {
    const journal = await Journal.open(join(options.dataDir, 'chain.journal'))
    try {
      return new Chain(options, journal, await readOpening(options, journal))
    } catch (error) {
      await journal.close()
      throw error
    }
  }

  get chainId(): number {
    return this.#options.chainId
  }

  get blockNumber(): number {
    return this.#head.number
  }

  /** Answered from memory: clients that follow the chain poll it constantly. */
  async readHeadBlock(): Promise<unknown> {
    this.#requireReady()
    return this.#headBlock
  }

  progress(): ChainProgress {
    return {
      state: this.#state === 'closed' ? 'failed' : this.#state,
      blockNumber: this.#head.number,
      entriesReplayed: this.#entriesReplayed,
      journalBytesRead: this.#journal.length,
      journalBytes: this.#journalBytes,
    }
  }

  /** Calls the EVM. Only for methods that change nothing. */
  async read(method: string, ...params: readonly unknown[]): Promise<unknown> {
    this.#requireReady()
    return this.#request(method, ...params)
  }

  /**
   * Asks the EVM what a call would do now. The EVM's last block may be hours old, while Arc's is half a second old. So the call
   * runs against the next block, after setting its time to the present.
   */
  async readPresent(method: string, call: unknown, ...rest: readonly unknown[]): Promise<unknown> {
    this.#requireReady()
    this.#balance.requireAllowed(call)
    if (this.#nextTime() > this.#presentTime) {
      // Goes through the writer's queue; otherwise it could run between setting a transaction's time and mining its block.
      await this.#enqueue(async () => {
        this.#presentTime = this.#nextTime()
        await this.#request('evm_setNextBlockTimestamp', this.#presentTime)
      })
    }
    return this.#request(method, call, 'pending', ...rest)
  }

  /** Mines the transaction in a block of its own, or throws the chain's error. */
  async sendRawTransaction(raw: Hex): Promise<Hash> {
    this.#requireReady()
    return this.#send(raw)
  }

  /** Sends test USDC by a transaction; its hash. */
  async giveUsdc(address: Address, atomic: bigint): Promise<Hash> {
    this.#requireReady()
    return this.#faucet.give(address, atomic)
  }

  /** The receipt of a transaction, with all logs. */
  async readReceipt(...params: readonly unknown[]): Promise<unknown> {
    return this.#balance.withLogs(await this.read('eth_getTransactionReceipt', ...params))
  }

  /** Searches the logs of these blocks. The EVM checks the filter. */
  async readLogs(range: BlockRange, params: readonly unknown[]): Promise<readonly Log[]> {
    await this.read('eth_getLogs', ...params)
    return this.#balance.logs(params[0] as LogFilter, range)
  }

  /** Mines blocks without transactions: the trustless withdrawal waits for a number of blocks. */
  async mine(blocks: number): Promise<void> {
    this.#requireReady()
    requireCount('blocks', blocks, minedBlocksMax)
    await this.#write((time) => ({ kind: 'mining', time, blocks }))
  }

  /** Advances the chain's clock permanently. It cannot be set back: a block is never older than its parent. */
  async advanceTime(seconds: number): Promise<void> {
    this.#requireReady()
    requireCount('seconds', seconds, advanceSecondsMax)
    await this.#write(() => ({ kind: 'clock', aheadSeconds: this.#aheadSeconds + seconds }))
  }

  /** Waits for the write in progress; refuses the queued ones. */
  async close(): Promise<void> {
    this.#state = 'closed'
    await this.ready.catch(() => {})
    await this.#lastWrite
    await this.#evm?.close()
    await this.#journal.close()
  }

  async #start(founding: FoundingEntry, isNew: boolean, entries: AsyncGenerator<JournalEntry>): Promise<void> {
    const { chainId, genesisTime, steps, time } = founding
    this.#evm = await openEvm({ chainId, genesisTime })
    await this.#readHead()
    for (const step of steps) await this.#applyStep(step, time)
    if (isNew) {
      // Unlike later entries, this one is written after it was applied: no client was served yet, and a failed founding must not
      // remain.
      await this.#journal.append(founding)
      this.#options.onStep('appended')
    }
    await this.#replay(entries)
    for (const address of this.#options.gasHolders) await this.#grantGas(address)
    if (this.#state === 'replaying') this.#state = 'ready'
  }

  async #replay(entries: AsyncGenerator<JournalEntry>): Promise<void> {
    for await (const entry of entries) {
      if (this.#state === 'closed') return
      if (entry.kind === 'founding' || entry.parent !== this.#head.hash) {
        // The replay did not produce the same blocks as before.
        throw new Error(
          `Entry ${this.#entriesReplayed + 1} of the chain's journal does not follow block ${this.#head.number} (${this.#head.hash}): ` +
            'the journal was written by another version of the chain.',
        )
      }
      await this.#apply(entry).catch(ignoreRefusal)
      this.#entriesReplayed += 1
    }
  }

  async #grantGas(address: Address): Promise<void> {
    const balance = await this.#request('eth_getBalance', address, 'latest')
    const nonce = await this.#request('eth_getTransactionCount', address, 'latest')
    if (BigInt(balance as Hex) === 0n && BigInt(nonce as Hex) === 0n) await this.#faucet.give(address, gasGrantAtomic)
  }

  async #send(raw: Hex): Promise<Hash> {
    return (await this.#write((time) => ({ kind: 'transaction', time, raw }))) as Hash
  }

  async #write(change: (time: number) => Change): Promise<unknown> {
    return this.#enqueue(async () => {
      const made = change(this.#nextTime())
      await this.#journal.append({ ...made, parent: this.#head.hash })
      this.#options.onStep('appended')
      const result = await this.#apply(made)
      this.#options.onStep('applied')
      return result
    })
  }

  /** Runs writes one after another, in order of arrival. */
  #enqueue(write: () => Promise<unknown>): Promise<unknown> {
    if (this.#writesWaiting >= writesWaitingMax)
      throw new RpcError(
        rpcCodes.limitExceeded,
        `More than ${writesWaitingMax} transactions are waiting; try again in a moment.`,
      )
    this.#writesWaiting += 1
    const written = this.#lastWrite.then(async () => {
      try {
        if (this.#state === 'closed' || this.#state === 'failed') throw new NotReadyError(this.progress())
        return await write()
      } catch (error) {
        if (error instanceof JournalBrokenError) this.#fail(error)
        throw rpcErrorOf(error)
      } finally {
        this.#writesWaiting -= 1
      }
    })
    this.#lastWrite = written.catch(() => {})
    return written
  }

  async #apply(change: Change): Promise<unknown> {
    switch (change.kind) {
      case 'transaction':
        return this.#mineTransaction(change.time, change.raw)
      case 'mining':
        return this.#mineEmpty(change.time, change.blocks)
      case 'clock':
        this.#aheadSeconds = change.aheadSeconds
        return undefined
    }
  }

  async #applyStep(step: FoundingStep, time: number): Promise<void> {
    switch (step.kind) {
      case 'transaction': {
        const hash = await this.#mineTransaction(time, step.raw)
        const receipt = (await this.#request('eth_getTransactionReceipt', hash)) as { status: Hex }
        if (receipt.status !== '0x1')
          throw new Error(`The sandbox chain cannot be founded: transaction ${hash} failed.`)
        return
      }
      case 'placement': {
        const code = await this.#request('eth_getCode', step.from, 'latest')
        if (code === '0x') throw new Error(`The sandbox chain cannot be founded: nothing was deployed at ${step.from}.`)
        await this.#request('hardhat_setCode', step.to, code)
        return
      }
      case 'funding':
        await this.#request('hardhat_setBalance', step.address, numberToHex(BigInt(step.wei)))
    }
  }

  async #mineEmpty(time: number, blocks: number): Promise<void> {
    for (let mined = 0; mined < blocks; mined += 1) {
      await this.#request('evm_setNextBlockTimestamp', time)
      await this.#request('evm_mine')
      await this.#request('hardhat_setNextBlockBaseFeePerGas', baseFee)
    }
    await this.#readHead()
  }

  async #mineTransaction(time: number, raw: Hex): Promise<Hash> {
    await this.#request('evm_setNextBlockTimestamp', time)
    const hash = await this.#balance.mine(raw, time)
    await this.#readHead()
    return hash
  }

  async #readHead(): Promise<void> {
    const block = await this.#request('eth_getBlockByNumber', 'latest', false)
    this.#headBlock = block
    const { number, hash, timestamp } = block as { number: Hex; hash: Hash; timestamp: Hex }
    this.#head = { number: Number(number), hash, time: Number(timestamp) }
    // Set the fee of the next block now, so that clients that query the gas price get this one. The EVM would lower it with every
    // block that is not full.
    await this.#request('hardhat_setNextBlockBaseFeePerGas', baseFee)
  }

  /** Never before the last block, even if the machine's clock was set back. */
  #nextTime(): number {
    return Math.max(this.#head.time, Math.floor(this.#options.clock() / 1000) + this.#aheadSeconds)
  }

  async #request(method: string, ...params: readonly unknown[]): Promise<unknown> {
    if (this.#evm === undefined) throw new NotReadyError(this.progress())
    return this.#evm.request(method, ...params).catch((error: unknown) => {
      throw rpcErrorOf(error)
    })
  }

  #requireReady(): void {
    if (this.#state !== 'ready') throw new NotReadyError(this.progress())
  }

  #fail(error: Error): void {
    if (this.#state === 'closed' || this.#state === 'failed') return
    this.#state = 'failed'
    this.#options.onFailure(error)
  }
}

type Opening = {
  readonly founding: FoundingEntry
  readonly isNew: boolean
  readonly entries: AsyncGenerator<JournalEntry>
  readonly journalBytes: number
}

async function readOpening({ chainId, clock, contracts }: ChainOptions, journal: Journal): Promise<Opening> {
  const journalBytes = await journal.size()
  const entries = journal.entries()
  const first = await entries.next()
  const founding = first.done
    ? await foundingOf(chainId, Math.floor(clock() / 1000), contracts)
    : requireFounding(first.value, chainId)
  return { founding, isNew: first.done === true, entries, journalBytes }
}

function requireFounding(entry: JournalEntry, chainId: number): FoundingEntry {
  // Earlier chains had two balances where Arc has one.
  if (entry.kind !== 'founding' || entry.version !== 2)
    throw new Error('The sandbox chain was written by another version. Delete the data folder to start a new sandbox.')
  if (entry.chainId !== chainId)
    throw new Error(`The sandbox chain cannot be founded: its journal is of chain ${entry.chainId}, not ${chainId}.`)
  return entry
}

function requireCount(name: string, count: number, max: number): void {
  if (Number.isInteger(count) && count > 0 && count <= max) return
  throw new RpcError(rpcCodes.invalidParams, `The number of ${name} must be from 1 to ${max}, got ${count}.`)
}

/** The journal also contains transactions that the chain refused: a replay refuses them again. */
function ignoreRefusal(error: unknown): void {
  if (!(error instanceof RpcError)) throw error
}

export class NotReadyError extends RpcError {
  constructor({ state, journalBytesRead, journalBytes }: ChainProgress) {
    const why =
      state === 'replaying'
        ? `is still replaying its journal (${journalBytesRead} of ${journalBytes} bytes); try again in a moment`
        : 'has stopped'
    super(rpcCodes.unavailable, `The chain ${why}.`)
  }
}
