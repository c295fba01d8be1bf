import { concat, decodeFunctionData, type Hash, type Hex, toHex } from 'viem'
import { settlementGatewayAbi } from '../contracts/generated/SettlementGateway.abi.ts'
import { type ChainNode, ChainNodeError } from '../src/chain/node.ts'
import { plainArray, textArray } from '../src/db/array-literal.ts'
import type { Connection, Database } from '../src/db/database.ts'
import type { OnAlarm } from './alarm.ts'
import { isSignedByPayer, type SignedPayment } from './payment.ts'
import { type GatewayTerms, lowerCase } from './terms.ts'

export type ForeignBatchesOptions = {
  readonly database: Database
  readonly node: ChainNode
  readonly terms: GatewayTerms
  readonly clock: () => number
  readonly onAlarm: OnAlarm
}

type ForeignBatch = { readonly batchId: bigint; readonly transactionHash: Hash }

const batchesMax = 10
const retryMs = 60_000
/** The largest value of a column; no balance comes near it. */
const amountMax = 2n ** 63n - 1n

/**
 * Finds out what was paid by batches that were not sent from this database, and stores it as completed transfers. So a client that queries by
 * nonce finds its payment even if a gateway with another database took it.
 */
export class ForeignBatches {
  readonly #options: ForeignBatchesOptions

  constructor(options: ForeignBatchesOptions) {
    this.#options = options
  }

  /** Reads some, newest first: clients wait for those. A batch that cannot be read does not block the others. */
  async read(): Promise<void> {
    const { database, clock } = this.#options
    const batches = await database.queryPrepared<ForeignBatch>(
      'find_foreign_batches',
      `select chain_batch_id as "batchId", transaction_hash as "transactionHash" from foreign_batches
        where not is_read and asked_at <= $1 order by asked_at, chain_batch_id desc limit $2`,
      [new Date(clock() - retryMs), batchesMax],
    )
    for (const batch of batches) await this.#read(batch)
  }

  async #read(batch: ForeignBatch): Promise<void> {
    const { database, clock, onAlarm } = this.#options
    const asked = 'update foreign_batches set asked_at = $2 where chain_batch_id = $1'
    await database.query(asked, [batch.batchId, new Date(clock())])
    const payments = await this.#ask(batch)
    if (await database.transaction((connection) => adopt(connection, batch.batchId, payments))) return
    // Leaves out the batch number: there may be thousands, for the same reason, and the message must stay the same to be reported
    // once.
    const message =
      'The node does not return transactions of batches that others settled. Their payments cannot be found by nonce yet.'
    onAlarm({ code: 'foreign_batch_unread', message })
  }

  async #ask({ batchId, transactionHash }: ForeignBatch): Promise<readonly SignedPayment[]> {
    const { node, terms } = this.#options
    try {
      const rows = readRows(await node.transactionData(transactionHash), batchId)
      return withoutSharedNonces(rows.filter((row) => isPossible(row) && isSignedByPayer(row, terms)))
    } catch (error) {
      if (error instanceof ChainNodeError) return []
      throw error
    }
  }
}

/** All rows of the batch, including those that the contract skipped. */
function readRows(data: Hex, batchId: bigint): readonly SignedPayment[] {
  const call = decode(data)
  if (call?.functionName !== 'settleBatch' || call.args[0] !== batchId) return []
  return call.args[2].map(({ from, to, value, validAfter, validBefore, nonce, v, r, s }) => ({
    payer: lowerCase(from),
    payee: lowerCase(to),
    value,
    validAfter,
    validBefore,
    nonce,
    signature: concat([r, s, toHex(v, { size: 1 })]),
  }))
}

/** Whether the contract can have settled it. The payer's signature proves the rest of what the node returned. */
function isPossible({ payer, payee, value }: SignedPayment): boolean {
  return payer !== payee && value > 0n && value <= amountMax
}

/** One of two rows with the same nonce was skipped, and it is unknown which: leave out both. */
function withoutSharedNonces(rows: readonly SignedPayment[]): readonly SignedPayment[] {
  const groups = Map.groupBy(rows, ({ payer, nonce }) => `${payer} ${nonce}`)
  return [...groups.values()].flatMap((group) => (group.length === 1 ? group : []))
}

function decode(data: Hex) {
  try {
    return decodeFunctionData({ abi: settlementGatewayAbi, data })
  } catch {
    return undefined
  }
}

/** Stores the payments that the log has named as transfers. Returns true when none of the batch is left. */
async function adopt(connection: Connection, batchId: bigint, payments: readonly SignedPayment[]): Promise<boolean> {
  const column = <Value>(pick: (payment: SignedPayment) => Value) => payments.map(pick)
  await connection.query(
    `with rows as (
       select * from unnest($2::text[], $3::text[], $4::int8[], $5::numeric[], $6::numeric[], $7::text[], $8::text[])
                as rows (payer, payee, value, valid_after, valid_before, nonce, signature)
     ), named as (
       delete from foreign_authorizations using rows
        where batch = $1 and foreign_authorizations.payer = rows.payer and foreign_authorizations.nonce = rows.nonce
       returning rows.*
     )
     insert into transfers (id, payer, payee, value, valid_after, valid_before, nonce, signature, status, foreign_batch)
     select gen_random_uuid(), named.*, 'completed', $1 from named on conflict do nothing`,
    [
      batchId,
      textArray(column(({ payer }) => payer)),
      textArray(column(({ payee }) => payee)),
      plainArray(column(({ value }) => value)),
      plainArray(column(({ validAfter }) => validAfter)),
      plainArray(column(({ validBefore }) => validBefore)),
      textArray(column(({ nonce }) => nonce)),
      textArray(column(({ signature }) => signature)),
    ],
  )
  const whole = await connection.query(
    `update foreign_batches set is_read = true
      where chain_batch_id = $1 and not exists (select from foreign_authorizations where batch = $1) returning chain_batch_id`,
    [batchId],
  )
  return whole.length === 1
}
