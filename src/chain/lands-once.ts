import { type Address, type Hash, type Hex, keccak256, type PrivateKeyAccount } from 'viem'
import { CallRevertsError, type ChainNode, ChainNodeError, type TransactionReceipt } from './node.ts'

/** A contract call that must be executed exactly once. */
export type ContractCall = {
  readonly to: Address
  readonly data: Hex
  /** A fixed gas limit. Without one it is the node's estimate and a quarter more. */
  readonly gas?: bigint | undefined
}

export type SignedTransaction = {
  readonly hash: Hash
  readonly nonce: bigint
  readonly raw: Hex
  readonly maxFeePerGas: bigint
}

/** A signed transaction of a call as its owner stored it: the first one, or a replacement with a higher fee. */
export type Version = SignedTransaction & { readonly sender: Address; readonly ageMs: bigint }

/** Storage for the versions of a call, in the caller's own table. */
export type CallVersions = {
  /** The newest first; at least one. */
  read(): Promise<readonly Version[]>
  /** Must be durable when it resolves: the transaction is broadcast afterwards. */
  add(transaction: SignedTransaction): Promise<void>
}

/**
 * The state of a call. `confirmed`: in a block that is not final. `superseded`: other transactions used the nonces of all its
 * versions, so none of them can land any more and the caller may sign a new one.
 */
export type CallFate =
  | { readonly state: 'waiting' | 'confirmed' | 'superseded' }
  | { readonly state: 'succeeded' | 'reverted'; readonly receipt: TransactionReceipt }

/** A problem for the operator. Nothing is lost; the call waits. */
export type SenderProblem = {
  readonly code: 'transaction_stuck' | 'relayer_without_gas' | 'gas_too_dear'
  readonly message: string
}

/** Steps after which a crash has an outcome of its own. `stored`: before each broadcast. */
export type SenderStep = 'stored' | 'sent' | 'receipt_seen'

export type SenderOptions = {
  readonly node: ChainNode
  readonly chainId: number
  /** Pays the gas. No other process may use its key: it would take the nonces of pending calls. */
  readonly account: PrivateKeyAccount
  readonly onProblem: (problem: SenderProblem) => void
  readonly onStep?: ((step: SenderStep) => void) | undefined
  readonly clock?: (() => number) | undefined
  /** A transaction that is not in a block after this time is sent again. */
  readonly resendMs?: number | undefined
  /** After this time it is replaced by one with a higher fee. */
  readonly replaceMs?: number | undefined
  /** The highest gas price that is offered, in wei. */
  readonly gasPriceMax?: bigint | undefined
}

/** The gas limit of a transaction since the Osaka upgrade. */
const gasMax = 2n ** 24n
const gasMarginPercent = 125n
const feeStepPercent = 125n
/** Arc's minimum. */
const gasPriceMin = 20_000_000_000n
/** The tip is this part of the fee. A replacement needs a tip that is at least a tenth higher; the fee grows by a quarter each time. */
const tipOfFee = 40n
const versionsMax = 50
const problemRepeatMs = 60_000

type WithDefaults = { readonly [Name in keyof SenderOptions]-?: NonNullable<SenderOptions[Name]> }

/**
 * Gets calls into the chain exactly once. Batches, withdrawals and sweeps use it; each stores the signed versions of its calls in its
 * own table. The rules:
 *
 * 1. A version is stored before any node sees it. After a crash the same bytes are sent again.
 * 2. The answer to a broadcast decides nothing: a node may have accepted the transaction and report an error. Only a receipt in a final
 *    block, or the use of the nonce by another transaction, ends a call.
 * 3. A transaction that does not get into a block is replaced under the same nonce with a higher fee. Of the versions of one nonce at
 *    most one can land.
 * 4. A sender has one pending call at a time; the caller ensures it. The next nonce is known only when the last one is used.
 *
 * A node can lie about nonces and receipts, and a restored table may lack a version. So the contract itself must refuse a second
 * execution: by batch number, by spent intent, by the token's authorization nonce.
 */
export class TransactionSender {
  readonly #options: WithDefaults
  readonly #reportedAtMs = new Map<string, number>()
  #sentAtMs = Number.NEGATIVE_INFINITY

  constructor(options: SenderOptions) {
    const { clock = Date.now, onStep = () => {}, resendMs = 3_000, replaceMs = 30_000 } = options
    const { gasPriceMax = 2_000_000_000_000n } = options
    this.#options = { ...options, clock, onStep, resendMs, replaceMs, gasPriceMax }
  }

  /** Lower case. */
  get address(): Address {
    return this.#options.account.address.toLowerCase() as Address
  }

  /**
   * Signs the first version. Throws `CallRevertsError` when the call would revert, and `CallPostponedError` when gas is too expensive or
   * the sender cannot pay it; then nothing was signed. `nonceMin`: lower nonces are known to be used, even if the node is behind.
   */
  async sign(call: ContractCall, nonceMin = 0n): Promise<SignedTransaction> {
    const { node } = this.#options
    const estimate = await node.estimateGas(this.address, call.to, call.data)
    if (call.gas !== undefined && estimate > call.gas) {
      throw new CallRevertsError('0x', new Error(`it needs ${estimate} gas, its limit is ${call.gas}`))
    }
    const gas = gasLimit(call, estimate)
    const fee = await this.#fee(0n)
    await this.#requireCoin(gas * fee)
    const count = await node.transactionCount(this.address, 'latest')
    return this.#signTransaction({ ...call, gas }, count > nonceMin ? count : nonceMin, fee, 0n)
  }

  /** Broadcasts a stored version. A failure is ignored: it is sent again later. */
  async broadcast(raw: Hex): Promise<void> {
    const { node, clock, onStep } = this.#options
    onStep('stored')
    this.#sentAtMs = clock()
    try {
      await node.sendRawTransaction(raw)
    } catch (error) {
      if (!(error instanceof ChainNodeError)) throw error
      if (/insufficient funds|doesn't have enough funds/i.test(error.message)) {
        this.#report('relayer_without_gas', `The relayer ${this.address} cannot pay for gas.`)
      }
    }
    onStep('sent')
  }

  /** Checks a call that was sent, and sends it again if needed. Blocks up to `finalized` are final. */
  async pursue(call: ContractCall, versions: CallVersions, finalized: bigint): Promise<CallFate> {
    const { node, onStep } = this.#options
    const stored = await versions.read()
    // The count is read before the receipts: otherwise a block in between would look like a foreign transaction.
    const count = await node.transactionCount(this.address, finalized)
    for (const { hash } of stored) {
      const receipt = await node.receipt(hash)
      if (receipt === undefined) continue
      onStep('receipt_seen')
      if (receipt.block > finalized) return { state: receipt.isSuccess ? 'confirmed' : 'waiting' }
      return { state: receipt.isSuccess ? 'succeeded' : 'reverted', receipt }
    }
    const own = stored.filter(({ sender }) => sender === this.address)
    if (own.length > 0 && own.every(({ nonce }) => count > nonce)) return { state: 'superseded' }
    await this.#sendAgain(call, stored, versions)
    return { state: 'waiting' }
  }

  /** Sends the newest version again, or signs one with a higher fee. */
  async #sendAgain(call: ContractCall, stored: readonly Version[], versions: CallVersions): Promise<void> {
    const { clock, resendMs, replaceMs } = this.#options
    const newest = stored[0]!
    if (newest.ageMs >= replaceMs && stored.length < versionsMax) {
      this.#report('transaction_stuck', `Transaction ${newest.hash} is in no block after ${replaceMs} ms.`)
      const replacement = await this.#replace(call, stored).catch(unlessPostponed)
      if (replacement !== undefined) {
        await versions.add(replacement)
        return this.broadcast(replacement.raw)
      }
    }
    // Even at the highest fee: nodes may have dropped it, and nothing else can be sent before it has landed.
    if (clock() - this.#sentAtMs >= resendMs) await this.broadcast(newest.raw)
  }

  async #replace(call: ContractCall, stored: readonly Version[]): Promise<SignedTransaction> {
    const { node } = this.#options
    const newest = stored[0]!
    const count = await node.transactionCount(this.address, 'latest')
    // With the nonce of an earlier sender, or one that a node made up, it would wait forever.
    const nonce = newest.sender !== this.address || count < newest.nonce ? count : newest.nonce
    // Only the replaced version must be outbid. A new sender starts again, even if the old one had reached the limit.
    const replaced = stored.find((version) => version.sender === this.address && version.nonce === nonce)
    const fee = await this.#fee(((replaced?.maxFeePerGas ?? 0n) * feeStepPercent) / 100n)
    const estimate = await node.estimateGas(this.address, call.to, call.data).catch(() => gasMax)
    return this.#signTransaction({ ...call, gas: gasLimit(call, estimate) }, nonce, fee, fee / tipOfFee)
  }

  async #fee(min: bigint): Promise<bigint> {
    const { node, gasPriceMax } = this.#options
    const doubled = (await node.baseFee()) * 2n
    const fee = [min, doubled, gasPriceMin].reduce((one, other) => (one > other ? one : other))
    if (fee <= gasPriceMax) return fee
    this.#report('gas_too_dear', `Gas costs ${fee} wei; at most ${gasPriceMax} is paid. Transactions wait.`)
    throw new CallPostponedError()
  }

  async #requireCoin(needed: bigint): Promise<void> {
    const balance = await this.#options.node.coinBalance(this.address)
    if (balance >= needed) return
    const message = `The relayer ${this.address} has ${balance} wei; the next transaction may need ${needed}. Transactions wait.`
    this.#report('relayer_without_gas', message)
    throw new CallPostponedError()
  }

  async #signTransaction(
    call: Required<ContractCall>,
    nonce: bigint,
    fee: bigint,
    tip: bigint,
  ): Promise<SignedTransaction> {
    const { account, chainId } = this.#options
    const raw = await account.signTransaction({
      type: 'eip1559',
      chainId,
      nonce: Number(nonce),
      to: call.to,
      data: call.data,
      gas: call.gas!,
      maxFeePerGas: fee,
      maxPriorityFeePerGas: tip,
    })
    return { hash: keccak256(raw), nonce, raw, maxFeePerGas: fee }
  }

  /** At most once a minute for the same problem. */
  #report(code: SenderProblem['code'], message: string): void {
    const { clock, onProblem } = this.#options
    const key = `${code} ${message}`
    const reportedAtMs = this.#reportedAtMs.get(key)
    if (reportedAtMs !== undefined && clock() - reportedAtMs < problemRepeatMs) return
    // Remembers one message per code.
    for (const earlier of this.#reportedAtMs.keys()) if (earlier.startsWith(code)) this.#reportedAtMs.delete(earlier)
    this.#reportedAtMs.set(key, clock())
    onProblem({ code, message })
  }
}

function gasLimit(call: ContractCall, estimate: bigint): bigint {
  if (call.gas !== undefined) return call.gas
  const gas = (estimate * gasMarginPercent) / 100n
  return gas < gasMax ? gas : gasMax
}

function unlessPostponed(error: unknown): undefined {
  if (!(error instanceof CallPostponedError)) throw error
}

/** Nothing was signed. `onProblem` was called with the reason. */
export class CallPostponedError extends Error {
  constructor() {
    super('the call was postponed')
    this.name = 'CallPostponedError'
  }
}
