import {
  type Address,
  encodeErrorResult,
  getContractAddress,
  type Hash,
  type Hex,
  numberToHex,
  pad,
  parseAbi,
  parseTransaction,
  recoverTransactionAddress,
  size,
  slice,
  type TransactionSerialized,
  toEventSelector,
  zeroAddress,
} from 'viem'
import { baseFeeWei } from './evm.ts'
import type { ChainAddresses } from './journal.ts'
import { RpcError, rpcCodes } from './rpc-error.ts'

/** One atomic USDC (6 decimals) in native coin (18 decimals). */
export const weiPerAtomic = 10n ** 12n

export type Log = Emitted & {
  readonly blockNumber: Hex
  readonly blockHash: Hash
  readonly logIndex: Hex
}
type Emitted = { readonly address: Address; readonly topics: readonly Hex[]; readonly data: Hex }
type Receipt = {
  readonly status: Hex
  readonly blockNumber: Hex
  readonly blockHash: Hash
  readonly transactionHash: Hash
  readonly from: Address
  readonly gasUsed: Hex
  readonly logs: readonly Log[]
}
/** A call within a transaction, in the form of the tracer. */
type Frame = {
  readonly type: string
  readonly from: Address
  readonly to?: Address
  readonly value?: Hex
  readonly error?: string
  readonly calls?: readonly Frame[]
  /** `position` is the number of `calls` before the log. */
  readonly logs?: readonly (Emitted & { readonly position: Hex })[]
}
type Sending = {
  readonly from: Address | undefined
  readonly to: Address | undefined
  readonly value: bigint
}
type Request = (method: string, ...params: readonly unknown[]) => Promise<unknown>

const transferTopic = toEventSelector('Transfer(address,address,uint256)')
const blacklistedTopic = toEventSelector('Blacklisted(address)')
const unBlacklistedTopic = toEventSelector('UnBlacklisted(address)')
const tracer = { tracer: 'callTracer', tracerConfig: { withLog: true } }
const valueTypes = ['CALL', 'CREATE', 'CREATE2', 'SELFDESTRUCT']
const revertingCode = '0x5f5ffd'
/** What `DevUsdc` reads as "nothing moved". */
const clearedNote = pad('0x1')

/**
 * Makes the EVM's coin and the token one balance, as on Arc. Every movement is logged by the system address, gas goes to the
 * beneficiary of the block, and neither blocked addresses nor the zero address take part in a movement.
 *
 * The token writes down what it moves (`DevUsdc.sol`); after the block the coin is moved accordingly and the notes are cleared.
 * Native movements are read from the trace of a transaction, and their logs are kept here. A transaction that Arc would revert is
 * mined with reverting code in place of its target.
 */
export class OneBalance {
  readonly #request: Request
  readonly #addresses: ChainAddresses
  readonly #blocked = new Set<string>()
  /** By block number: a block has at most one transaction. */
  readonly #logs: (readonly Log[])[] = []
  #beneficiary: Address | undefined

  constructor(request: Request, addresses: ChainAddresses) {
    this.#request = request
    this.#addresses = addresses
  }

  /** Mines the transaction in a block of its own. `time` is the time of the block, in seconds. */
  async mine(raw: Hex, time: number): Promise<Hash> {
    const transaction = parse(raw)
    const moves = transaction === undefined ? 'nothing' : await this.#movesCoin(transaction)
    // Recovering the sender costs as much as mining the transaction.
    const isJudged = moves === 'by call' || transaction?.to === zeroAddress || this.#blocked.size > 0
    const sending = transaction && isJudged ? { ...transaction, from: await senderOf(raw) } : undefined
    if (sending !== undefined) this.#requireUnblocked(sending)
    const isRefused = sending !== undefined && moves !== 'nothing' && (await this.#breaksRules(sending))
    const hash = await (isRefused ? this.#mineReverted(sending, raw) : this.#send(raw))
    const receipt = (await this.#request('eth_getTransactionReceipt', hash)) as Receipt
    this.#logs[Number(receipt.blockNumber)] = receipt.logs
    if (transaction !== undefined && moves !== 'nothing' && receipt.status === '0x1') {
      const frame = moves === 'by call' ? await this.#trace(hash) : sendFrame(receipt, transaction)
      this.#logs[Number(receipt.blockNumber)] = this.#completeLogs(frame, receipt, time)
    }
    this.#noteBlocked(receipt.logs)
    await this.#settle(receipt)
    return hash
  }

  /** Throws what Arc answers to an `eth_call` that sends coin from or to an address that may not take part. */
  requireAllowed(call: unknown): void {
    const { from, to, value } = (call ?? {}) as Readonly<Record<string, unknown>>
    const sending = { from: maybeAddress(from), to: maybeAddress(to), value: maybeQuantity(value) }
    this.#requireUnblocked(sending)
    if (sending.value > 0n && sending.to === zeroAddress) {
      const data = encodeErrorResult({ abi: parseAbi(['error Error(string)']), args: ['Zero address not allowed'] })
      throw new RpcError(rpcCodes.reverted, 'execution reverted: Zero address not allowed', data)
    }
  }

  /** The receipt with the logs of native movements. */
  withLogs(receipt: unknown): unknown {
    if (receipt === null) return null
    return { ...(receipt as Receipt), logs: this.#logs[Number((receipt as Receipt).blockNumber)] }
  }

  /** The logs that a valid filter of `eth_getLogs` matches, in order. */
  logs(filter: LogFilter, range: BlockRange): Log[] {
    const { blockHash, address, topics = [] } = filter
    const addresses = address && [address].flat().map((one) => one.toLowerCase())
    const blocks = blockHash
      ? this.#logs.filter((logs) => logs[0]?.blockHash === blockHash)
      : this.#logs.slice(range.from, range.to + 1)
    return blocks
      .flat()
      .filter((log) => addresses === undefined || addresses.length === 0 || addresses.includes(log.address))
      .filter((log) => topics.every((topic, index) => matchesTopic(topic, log.topics[index])))
  }

  #requireUnblocked({ from, to, value }: Sending): void {
    if (this.#isBlocked(from) || (value > 0n && this.#isBlocked(to))) {
      throw new RpcError(rpcCodes.rejected, 'Blocked address')
    }
  }

  #isBlocked(address: Address | undefined): boolean {
    return address !== undefined && this.#blocked.has(address)
  }

  /** Token and gateway move no coin unless they are sent some. They are called most, so their calls are not traced. */
  async #movesCoin({ to, value }: Transaction): Promise<'nothing' | 'by send' | 'by call'> {
    const isOurs = to === this.#addresses.usdc || to === this.#addresses.gateway.toLowerCase()
    if (isOurs && value === 0n) return 'nothing'
    if (to === undefined || (await this.#request('eth_getCode', to, 'latest')) !== '0x') return 'by call'
    return value > 0n ? 'by send' : 'nothing'
  }

  /** Whether an address may not take part, or a contract spent the same money by the token and as coin. */
  async #breaksRules(sending: SignedTransaction): Promise<boolean> {
    const { from, to, value, data, gas } = sending
    const call = { from, to, data, value: numberToHex(value), gas: numberToHex(gas) }
    let frame: Frame
    try {
      frame = (await this.#request('debug_traceCall', call, 'latest', tracer)) as Frame
    } catch {
      // The EVM refuses the transaction too, and says why.
      return false
    }
    const movements = this.#movements([...this.#emitted(frame)])
    if (movements.some(({ from, to }) => to === zeroAddress || this.#isBlocked(from) || this.#isBlocked(to)))
      return true
    for (const [address, change] of changesOf(movements)) {
      if (change < 0n && (await this.#balance(address)) + change < 0n) return true
    }
    return false
  }

  async #send(raw: Hex): Promise<Hash> {
    return (await this.#request('eth_sendRawTransaction', raw)) as Hash
  }

  async #mineReverted({ from, to, nonce }: SignedTransaction, raw: Hex): Promise<Hash> {
    const target = to ?? getContractAddress({ from, nonce: BigInt(nonce) })
    const code = await this.#request('eth_getCode', target, 'latest')
    await this.#request('hardhat_setCode', target, revertingCode)
    try {
      return await this.#send(raw)
    } finally {
      await this.#request('hardhat_setCode', target, code)
    }
  }

  async #trace(hash: Hash): Promise<Frame> {
    return (await this.#request('debug_traceTransaction', hash, tracer)) as Frame
  }

  #completeLogs(frame: Frame, receipt: Receipt, time: number): Log[] {
    const { blockNumber, blockHash, transactionHash } = receipt
    const place = { blockNumber, blockHash, transactionHash, transactionIndex: '0x0', removed: false }
    return [...this.#emitted(frame)].map(({ address, topics, data }, index) => {
      return { address, topics, data, ...place, blockTimestamp: numberToHex(time), logIndex: numberToHex(index) }
    })
  }

  /** The logs of a call and its inner calls, in the order of execution. What is reverted logs nothing. */
  *#emitted(frame: Frame): Generator<Emitted> {
    const { type, from, to, value = '0x0', calls = [], logs = [] } = frame
    if (frame.error !== undefined) return
    if (valueTypes.includes(type) && BigInt(value) > 0n && from !== to) {
      const topics = [transferTopic, pad(from), pad(to ?? zeroAddress)]
      yield { address: this.#addresses.systemLog, topics, data: pad(value) }
    }
    for (let position = 0; position <= calls.length; position += 1) {
      yield* logs.filter((log) => Number(log.position) === position)
      if (position < calls.length) yield* this.#emitted(calls[position]!)
    }
  }

  #movements(logs: readonly Emitted[]): Movement[] {
    return logs
      .filter(({ address }) => address === this.#addresses.systemLog)
      .map(({ topics, data }) => ({ from: addressOf(topics[1]), to: addressOf(topics[2]), value: BigInt(data) }))
  }

  #noteBlocked(logs: readonly Log[]): void {
    for (const { address, topics } of logs) {
      if (address !== this.#addresses.usdc) continue
      if (topics[0] === blacklistedTopic) this.#blocked.add(addressOf(topics[1]))
      if (topics[0] === unBlacklistedTopic) this.#blocked.delete(addressOf(topics[1]))
    }
  }

  /** Moves the coin after the token, and gives the base fee, which the EVM burns, to the beneficiary. */
  async #settle({ logs, gasUsed }: Receipt): Promise<void> {
    this.#beneficiary ??= (await this.#request('eth_coinbase')) as Address
    const changes = changesOf(this.#movements(logs))
    for (const address of changes.keys()) {
      const note = `${address}${'0'.repeat(24)}`
      await this.#request('hardhat_setStorageAt', this.#addresses.usdc, note, clearedNote)
    }
    add(changes, this.#beneficiary, BigInt(gasUsed) * baseFeeWei)
    for (const [address, change] of changes) {
      if (change === 0n) continue
      await this.#request('hardhat_setBalance', address, numberToHex((await this.#balance(address)) + change))
    }
  }

  async #balance(address: Address): Promise<bigint> {
    return BigInt((await this.#request('eth_getBalance', address, 'latest')) as Hex)
  }
}

export type BlockRange = { readonly from: number; readonly to: number }
export type LogFilter = {
  readonly blockHash?: Hash | null
  readonly address?: Address | readonly Address[]
  readonly topics?: readonly (Hex | readonly Hex[] | null)[]
}
type Movement = { readonly from: Address; readonly to: Address; readonly value: bigint }
type Transaction = {
  readonly to: Address | undefined
  readonly value: bigint
  readonly data: Hex | undefined
  readonly gas: bigint
  readonly nonce: number
}
type SignedTransaction = Transaction & { readonly from: Address }

/** Undefined if it is no transaction: the EVM then says what is wrong with it. */
function parse(raw: Hex): Transaction | undefined {
  try {
    const { to, value = 0n, data, gas = 0n, nonce = 0 } = parseTransaction(raw as TransactionSerialized)
    return { to: to ? lowerCase(to) : undefined, value, data, gas, nonce }
  } catch {
    return undefined
  }
}

/** A plain send as the tracer would report it. */
function sendFrame({ from }: Receipt, { to = zeroAddress, value }: Transaction): Frame {
  return { type: 'CALL', from, to, value: numberToHex(value) }
}

async function senderOf(raw: Hex): Promise<Address> {
  return lowerCase(await recoverTransactionAddress({ serializedTransaction: raw as TransactionSerialized }))
}

/** The zero address is not an account: minted coin comes from it. */
function changesOf(movements: readonly Movement[]): Map<Address, bigint> {
  const changes = new Map<Address, bigint>()
  for (const { from, to, value } of movements) {
    if (from !== zeroAddress) add(changes, from, -value)
    if (to !== zeroAddress) add(changes, to, value)
  }
  return changes
}

function add(changes: Map<Address, bigint>, address: Address, change: bigint): void {
  changes.set(address, (changes.get(address) ?? 0n) + change)
}

function matchesTopic(wanted: Hex | readonly Hex[] | null | undefined, topic: Hex | undefined): boolean {
  if (wanted === null || wanted === undefined) return topic !== undefined
  const choices = [wanted].flat()
  return topic !== undefined && (choices.length === 0 || choices.some((choice) => choice.toLowerCase() === topic))
}

function addressOf(topic: Hex | undefined): Address {
  return topic === undefined || size(topic) !== 32 ? zeroAddress : slice(topic, 12)
}

function maybeAddress(value: unknown): Address | undefined {
  return typeof value === 'string' ? lowerCase(value as Address) : undefined
}

/** Of what is no quantity the EVM says so. */
function maybeQuantity(value: unknown): bigint {
  return typeof value === 'string' && /^0x[0-9a-f]{1,64}$/i.test(value) ? BigInt(value) : 0n
}

function lowerCase(address: Address): Address {
  return address.toLowerCase() as Address
}
