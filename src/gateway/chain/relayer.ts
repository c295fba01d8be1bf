import type { Address, Hash, Hex, PrivateKeyAccount } from 'viem'
import { keccak256 } from 'viem'
import type { Connection, Database } from '../../db/database.ts'
import type { OnAlarm } from '../alarm.ts'
import type { Failpoint } from '../failpoints.ts'
import type { GatewayTerms } from '../terms.ts'
import { type ChainNode, ChainNodeError, type TransactionReceipt } from './node.ts'

export type RelayerOptions = {
  readonly database: Database
  readonly node: ChainNode
  readonly terms: GatewayTerms
  readonly account: PrivateKeyAccount
  readonly clock: () => number
  /** A transaction that is not in a block after this is sent once more, and after that with a higher fee. */
  readonly resendMs: number
  readonly replaceMs: number
  /** The most that is offered for a unit of gas, in wei. */
  readonly gasPriceMax: bigint
  readonly onAlarm: OnAlarm
  readonly failpoint: Failpoint
}

export type CallKind = 'batch' | 'withdrawal'

/** A call that is signed, and that no node has seen. */
export type SignedCall = { readonly data: Hex; readonly transaction: SignedTransaction }

type SignedTransaction = {
  readonly hash: Hash
  readonly nonce: bigint
  readonly raw: Hex
  readonly maxFeePerGas: bigint
}

export type OpenCall = { readonly id: bigint; readonly kind: CallKind; readonly data: Hex }
/** What became of the open call. `waiting`: nothing yet. */
export type CallFate =
  | { readonly state: 'waiting' | 'confirmed' | 'superseded' }
  | { readonly state: 'succeeded' | 'reverted'; readonly receipt: TransactionReceipt }

type Version = SignedTransaction & { readonly relayer: Address; readonly ageMs: bigint }

/** Since Osaka a transaction may not have more. */
const gasMax = 2n ** 24n
const gasMarginPercent = 125n
const feeStepPercent = 125n
/** Arc's floor: below it no transaction is taken. */
const gasPriceMin = 20_000_000_000n
/** A replacement must offer a higher tip too, however small. */
const tipStep = 1_000_000_000n
const versionsMax = 50

/**
 * Sends what the contract lets only relayers send, one call at a time. A call and every signed version of it are stored before
 * a node sees them: after a crash, a lost answer or a dropped transaction the same bytes are sent again. Should two versions
 * ever land, the contract's own numbers (batch ids, spent intents) refuse the second.
 */
export class Relayer {
  readonly #options: RelayerOptions
  #sentAtMs = 0

  constructor(options: RelayerOptions) {
    this.#options = options
  }

  get address(): Address {
    return this.#options.account.address.toLowerCase() as Address
  }

  /** Signs the call, if the contract would take it and the relayer can pay for it; otherwise throws and nothing has happened. */
  async sign(data: Hex): Promise<SignedCall> {
    const { node, terms, database } = this.#options
    const estimate = await node.estimateGas(this.address, terms.wallet, data)
    const gas = gasLimit(estimate)
    const fee = await this.#fee(0n)
    await this.#requireCoin(gas * fee)
    const [last] = await database.query<{ next: bigint }>(
      `select nonce + 1 as next from transactions join calls on calls.id = call
        where relayer = $1 and calls.hash = transactions.hash order by nonce desc limit 1`,
      [this.address],
    )
    // The node may be behind what is known to be in the chain.
    const count = await node.transactionCount(this.address, 'latest')
    const nonce = count > (last?.next ?? 0n) ? count : (last?.next ?? 0n)
    return { data, transaction: await this.#signTransaction(data, nonce, gas, fee, 0n) }
  }

  /** In the same database transaction as what the call is for. */
  async store(connection: Connection, kind: CallKind, { data, transaction }: SignedCall): Promise<bigint> {
    const [call] = await connection.query<{ id: bigint }>(
      'insert into calls (kind, data) values ($1, $2) returning id',
      [kind, data],
    )
    await storeVersion(connection, call!.id, this.address, transaction)
    return call!.id
  }

  /** Sends it for the first time. That this fails means nothing: it is stored, and will be sent again. */
  async send({ transaction }: SignedCall): Promise<void> {
    this.#options.failpoint('call_stored')
    await this.#broadcast(transaction.raw)
    this.#options.failpoint('call_sent')
  }

  async findOpen(): Promise<OpenCall | undefined> {
    const [open] = await this.#options.database.query<OpenCall>(`select id, kind, data from calls where state = 'sent'`)
    return open
  }

  /** Looks after a call that was sent. `finalized` is a block up to which all events have been applied. */
  async pursue(call: OpenCall, finalized: bigint): Promise<CallFate> {
    const { node } = this.#options
    const versions = await readVersions(this.#options.database, call.id)
    // First the count, then the receipts: in the other order a block in between would look like a stranger's transaction.
    const count = await node.transactionCount(this.address, finalized)
    for (const { hash } of versions) {
      const receipt = await node.receipt(hash)
      if (receipt === undefined) continue
      this.#options.failpoint('receipt_seen')
      if (receipt.block > finalized) return { state: receipt.isSuccess ? 'confirmed' : 'waiting' }
      return { state: receipt.isSuccess ? 'succeeded' : 'reverted', receipt }
    }
    const own = versions.filter(({ relayer }) => relayer === this.address)
    if (own.length > 0 && own.every(({ nonce }) => count > nonce)) return { state: 'superseded' }
    await this.#insist(call, versions)
    return { state: 'waiting' }
  }

  /** Writes down how it ended, in the same database transaction as what follows from it. */
  async close(connection: Connection, call: OpenCall, fate: CallFate): Promise<boolean> {
    const receipt = 'receipt' in fate ? fate.receipt : undefined
    const closed = await connection.query(
      `update calls set state = $2, block = $3, hash = $4, gas_used = $5, gas_cost = $6
        where id = $1 and state = 'sent' returning id`,
      [
        call.id,
        fate.state,
        receipt?.block ?? null,
        receipt?.hash ?? null,
        receipt?.gasUsed ?? null,
        receipt === undefined ? null : receipt.gasUsed * receipt.gasPrice,
      ],
    )
    if (fate.state === 'succeeded') {
      // Only what may have to be sent again is worth its space.
      await connection.query(`update calls set data = '' where id = $1`, [call.id])
      await connection.query(`update transactions set raw = '' where call = $1`, [call.id])
    }
    return closed.length === 1
  }

  /** Sends the newest version again, or signs one with a higher fee. */
  async #insist(call: OpenCall, versions: readonly Version[]): Promise<void> {
    const { clock, resendMs, replaceMs, onAlarm } = this.#options
    const newest = versions[0]!
    if (newest.ageMs >= replaceMs && versions.length < versionsMax) {
      onAlarm({
        code: 'transaction_stuck',
        message: `Transaction ${newest.hash} is in no block after ${replaceMs} ms.`,
      })
      const replacement = await this.#replace(call, versions).catch(unlessPostponed)
      if (replacement !== undefined) return this.#broadcast(replacement.raw)
    }
    // Also when no more may be offered: no node may have it any more, and nothing else is sent before it has landed.
    if (clock() - this.#sentAtMs >= resendMs) await this.#broadcast(newest.raw)
  }

  async #replace(call: OpenCall, versions: readonly Version[]): Promise<SignedTransaction> {
    const { node, database, terms } = this.#options
    const newest = versions[0]!
    const count = await node.transactionCount(this.address, 'latest')
    // Under a number of an earlier relayer, or one that a node made up, it would wait for ever.
    const nonce = newest.relayer !== this.address || count < newest.nonce ? count : newest.nonce
    // Only what it replaces must be outbid: a new relayer begins anew, also when the old one had come to the limit.
    const replaced = versions.find((version) => version.relayer === this.address && version.nonce === nonce)
    const fee = await this.#fee(((replaced?.maxFeePerGas ?? 0n) * feeStepPercent) / 100n)
    const estimate = await node.estimateGas(this.address, terms.wallet, call.data).catch(() => gasMax)
    const replacement = await this.#signTransaction(
      call.data,
      nonce,
      gasLimit(estimate),
      fee,
      BigInt(versions.length) * tipStep,
    )
    await storeVersion(database, call.id, this.address, replacement)
    return replacement
  }

  async #broadcast(raw: Hex): Promise<void> {
    const { node, clock, onAlarm } = this.#options
    this.#sentAtMs = clock()
    try {
      await node.sendRawTransaction(raw)
    } catch (error) {
      // Whatever the node says ("already known", a time-out, nonsense), it may have taken the transaction: its receipt will tell.
      if (!(error instanceof ChainNodeError)) throw error
      if (/insufficient funds|doesn't have enough funds/i.test(error.message)) {
        onAlarm({ code: 'relayer_without_gas', message: `The relayer ${this.address} cannot pay for gas.` })
      }
    }
  }

  async #fee(min: bigint): Promise<bigint> {
    const { node, gasPriceMax, onAlarm } = this.#options
    const doubled = (await node.baseFee()) * 2n
    const fee = [min, doubled, gasPriceMin].reduce((one, other) => (one > other ? one : other))
    if (fee <= gasPriceMax) return fee
    onAlarm({ code: 'gas_too_dear', message: `Gas costs ${fee} wei, at most ${gasPriceMax} is paid: batches wait.` })
    throw new CallPostponedError()
  }

  async #requireCoin(needed: bigint): Promise<void> {
    const { node, onAlarm } = this.#options
    const balance = await node.coinBalance(this.address)
    if (balance >= needed) return
    const message = `The relayer ${this.address} has ${balance} wei, the next call may need ${needed}: batches wait.`
    onAlarm({ code: 'relayer_without_gas', message })
    throw new CallPostponedError()
  }

  async #signTransaction(data: Hex, nonce: bigint, gas: bigint, fee: bigint, tip: bigint): Promise<SignedTransaction> {
    const { account, terms } = this.#options
    const raw = await account.signTransaction({
      type: 'eip1559',
      chainId: terms.chainId,
      nonce: Number(nonce),
      to: terms.wallet,
      data,
      gas,
      maxFeePerGas: fee,
      maxPriorityFeePerGas: tip < fee ? tip : fee,
    })
    return { hash: keccak256(raw), nonce, raw, maxFeePerGas: fee }
  }
}

function gasLimit(estimate: bigint): bigint {
  const gas = (estimate * gasMarginPercent) / 100n
  return gas < gasMax ? gas : gasMax
}

async function storeVersion(
  connection: Connection,
  call: bigint,
  relayer: Address,
  transaction: SignedTransaction,
): Promise<void> {
  await connection.query(
    `insert into transactions (hash, call, relayer, nonce, raw, max_fee_per_gas) values ($1, $2, $3, $4, $5, $6)
     on conflict do nothing`,
    [transaction.hash, call, relayer, transaction.nonce, transaction.raw, transaction.maxFeePerGas],
  )
}

/** The newest first. */
async function readVersions(connection: Connection, call: bigint): Promise<readonly Version[]> {
  const rows = await connection.query<Omit<Version, 'maxFeePerGas'> & { maxFeePerGas: string }>(
    `select hash, relayer, nonce, raw, max_fee_per_gas as "maxFeePerGas",
            (extract(epoch from clock_timestamp() - created_at) * 1000)::int8 as "ageMs"
       from transactions where call = $1 order by created_at desc, max_fee_per_gas desc`,
    [call],
  )
  return rows.map((row) => ({ ...row, maxFeePerGas: BigInt(row.maxFeePerGas) }))
}

function unlessPostponed(error: unknown): undefined {
  if (!(error instanceof CallPostponedError)) throw error
}

/** Not now; the reason has been told. Nothing was signed. */
export class CallPostponedError extends Error {
  constructor() {
    super('the call was postponed')
    this.name = 'CallPostponedError'
  }
}
