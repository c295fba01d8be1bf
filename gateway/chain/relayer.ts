import type { Address, Hash, Hex } from 'viem'
import type { CallFate, SignedTransaction, TransactionSender, Version } from '../../src/chain/lands-once.ts'
import type { Connection, Database } from '../../src/db/database.ts'
import type { GatewayTerms } from '../terms.ts'

export type RelayerOptions = {
  readonly database: Database
  readonly terms: GatewayTerms
  readonly sender: TransactionSender
}

export type CallKind = 'batch' | 'withdrawal'

/** A signed call that no node has received yet. */
export type SignedCall = { readonly data: Hex; readonly transaction: SignedTransaction }

export type OpenCall = { readonly id: bigint; readonly kind: CallKind; readonly data: Hex }

/** Sends the calls that the contract accepts only from relayers, one at a time, and stores the calls and their signed versions. */
export class Relayer {
  readonly #options: RelayerOptions

  constructor(options: RelayerOptions) {
    this.#options = options
  }

  get address(): Address {
    return this.#options.sender.address
  }

  /** Signs the call if the contract would accept it and the relayer can pay for it. Otherwise throws, without side effects. */
  async sign(data: Hex): Promise<SignedCall> {
    const { database, sender, terms } = this.#options
    const [last] = await database.query<{ next: bigint }>(
      `select nonce + 1 as next from transactions join calls on calls.id = call
        where relayer = $1 and calls.hash = transactions.hash order by nonce desc limit 1`,
      [this.address],
    )
    return { data, transaction: await sender.sign({ to: terms.wallet, data }, last?.next) }
  }

  /** Call it in the database transaction that stores what the call is for. */
  async store(connection: Connection, kind: CallKind, { data, transaction }: SignedCall): Promise<bigint> {
    const [call] = await connection.query<{ id: bigint }>(
      'insert into calls (kind, data) values ($1, $2) returning id',
      [kind, data],
    )
    await storeVersion(connection, call!.id, this.address, transaction)
    return call!.id
  }

  /** Sends the call for the first time. A failure does no harm: the call is stored and will be sent again. */
  async send({ transaction }: SignedCall): Promise<void> {
    await this.#options.sender.broadcast(transaction.raw)
  }

  async findOpen(): Promise<OpenCall | undefined> {
    const [open] = await this.#options.database.queryPrepared<OpenCall>(
      'find_open_call',
      `select id, kind, data from calls where state = 'sent'`,
      [],
    )
    return open
  }

  /** Checks on a call that was sent. All events up to the block `finalized` must have been applied. */
  async pursue(call: OpenCall, finalized: bigint): Promise<CallFate> {
    const { database, sender, terms } = this.#options
    const versions = {
      read: () => readVersions(database, call.id),
      add: (transaction: SignedTransaction) => storeVersion(database, call.id, this.address, transaction),
    }
    return sender.pursue({ to: terms.wallet, data: call.data }, versions, finalized)
  }

  /** Stores how the call ended. Call it in the database transaction that stores the consequences. */
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
      // Keep data only for calls that may have to be sent again.
      await connection.query(`update calls set data = '' where id = $1`, [call.id])
      await connection.query(`update transactions set raw = '' where call = $1`, [call.id])
    }
    return closed.length === 1
  }
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

type VersionRow = {
  readonly hash: Hash
  readonly sender: Address
  readonly nonce: bigint
  readonly raw: Hex
  readonly maxFeePerGas: string
  readonly ageMs: bigint
}

/** Newest first. */
async function readVersions(connection: Connection, call: bigint): Promise<readonly Version[]> {
  const rows = await connection.query<VersionRow>(
    `select hash, relayer as sender, nonce, raw, max_fee_per_gas as "maxFeePerGas",
            (extract(epoch from clock_timestamp() - created_at) * 1000)::int8 as "ageMs"
       from transactions where call = $1 order by created_at desc, max_fee_per_gas desc`,
    [call],
  )
  return rows.map((row) => ({ ...row, maxFeePerGas: BigInt(row.maxFeePerGas) }))
}
