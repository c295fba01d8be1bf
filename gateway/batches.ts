import { type Address, encodeFunctionData, type Hex } from 'viem'
import { settlementGatewayAbi } from '../contracts/generated/SettlementGateway.abi.ts'
import { type ChainNode, ChainNodeError } from '../src/chain/node.ts'
import { plainArray, textArray } from '../src/db/array-literal.ts'
import type { Connection, Database } from '../src/db/database.ts'
import { viewLastBatchId } from './chain/contract-views.ts'
import type { Relayer } from './chain/relayer.ts'
import { readChainState } from './chain/state.ts'
import { receiptRoot } from './receipt-tree.ts'
import type { GatewayTerms } from './terms.ts'

export type BatchesOptions = {
  readonly database: Database
  readonly node: ChainNode
  readonly terms: GatewayTerms
  readonly relayer: Relayer
  /** How long a transfer waits for others to share its batch. */
  readonly batchMs: number
}

/** The contract's limit. This many rows fit into a transaction even if all payers and payees are new. */
export const batchRowsMax = 250

type WaitingRow = {
  readonly id: string
  readonly payer: Address
  readonly payee: Address
  readonly value: bigint
  readonly validAfter: string
  readonly validBefore: string
  readonly nonce: Hex
  readonly signature: Hex
  readonly receiptHash: Hex | null
}

export class Batches {
  readonly #options: BatchesOptions
  /** Halved when a batch reverts, until the failing row is alone in its batch; reset after the next success. */
  #rowsMax = batchRowsMax

  constructor(options: BatchesOptions) {
    this.#options = options
  }

  onSucceeded(): void {
    this.#rowsMax = batchRowsMax
  }

  onReverted(): void {
    this.#rowsMax = Math.max(1, Math.floor(this.#rowsMax / 2))
  }

  /** Sends the next batch, if one is due. */
  async sendNext(): Promise<boolean> {
    const { database, relayer } = this.#options
    const rows = await readDue(database, this.#rowsMax, this.#options.batchMs)
    if (rows.length === 0) return false
    const batchId = await this.#nextBatchId()
    const root = receiptRoot(rows.flatMap(({ receiptHash }) => receiptHash ?? []))
    const call = await relayer.sign(encodeBatch(batchId, root, rows))
    await database.transaction(async (connection) => {
      const id = await relayer.store(connection, 'batch', call)
      await storeBatch(connection, { call: id, batchId, root }, rows)
    })
    await relayer.send(call)
    return true
  }

  async #nextBatchId(): Promise<bigint> {
    const { node, terms, database } = this.#options
    const last = await viewLastBatchId(node, terms)
    const { lastBatchId } = await readChainState(database)
    if (last < lastBatchId)
      throw new ChainNodeError(`the node reports ${last} batches; the database has ${lastBatchId}`)
    return last + 1n
  }
}

/** Returns the rows of a batch that never took effect to the queue. */
export async function releaseBatch(connection: Connection, call: bigint): Promise<void> {
  await connection.query(`update batches set state = 'released' where call = $1 and state = 'sent'`, [call])
  await connection.query(
    `update transfers set status = 'received', updated_at = clock_timestamp()
       from batches where batches.call = $1 and transfers.batch = batches.id and status in ('batched', 'confirmed')`,
    [call],
  )
}

/** The batch's transaction is in a block that is not final yet. */
export async function confirmBatch(connection: Connection, call: bigint): Promise<void> {
  await connection.query(
    `update transfers set status = 'confirmed', updated_at = clock_timestamp()
       from batches where batches.call = $1 and transfers.batch = batches.id and status = 'batched'`,
    [call],
  )
}

/** The oldest rows, once they have waited long enough or fill a batch. */
async function readDue(database: Database, rowsMax: number, batchMs: number): Promise<readonly WaitingRow[]> {
  const rows = await database.queryPrepared<WaitingRow & { isDue: boolean }>(
    'read_waiting_transfers',
    `select id, payer, payee, value, valid_after as "validAfter", valid_before as "validBefore", nonce, signature,
            receipt_hash as "receiptHash", created_at + $2::int8 * interval '1 ms' <= clock_timestamp() as "isDue"
       from transfers where status = 'received' and retry_at <= clock_timestamp() order by sequence limit $1`,
    [rowsMax, batchMs],
  )
  return rows.length === rowsMax || rows.some(({ isDue }) => isDue) ? rows.sort(byPayer) : []
}

/** Adjacent rows of the same payer and payee cost the least gas: their balances are written once. */
function byPayer(one: WaitingRow, other: WaitingRow): number {
  if (one.payer !== other.payer) return one.payer < other.payer ? -1 : 1
  if (one.payee !== other.payee) return one.payee < other.payee ? -1 : 1
  return one.nonce < other.nonce ? -1 : 1
}

function encodeBatch(batchId: bigint, root: Hex, rows: readonly WaitingRow[]): Hex {
  const authorizations = rows.map(({ payer, payee, value, validAfter, validBefore, nonce, signature }) => {
    const [r, s]: Hex[] = [`0x${signature.slice(2, 66)}`, `0x${signature.slice(66, 130)}`]
    const window = { validAfter: BigInt(validAfter), validBefore: BigInt(validBefore) }
    return { from: payer, to: payee, value, ...window, nonce, v: Number(`0x${signature.slice(130)}`), r: r!, s: s! }
  })
  return encodeFunctionData({
    abi: settlementGatewayAbi,
    functionName: 'settleBatch',
    args: [batchId, root, authorizations],
  })
}

async function storeBatch(
  connection: Connection,
  { call, batchId, root }: { readonly call: bigint; readonly batchId: bigint; readonly root: Hex },
  rows: readonly WaitingRow[],
): Promise<void> {
  const ids = plainArray(rows.map(({ id }) => id))
  const [batch] = await connection.query<{ id: bigint }>(
    'insert into batches (call, chain_batch_id, receipt_root, row_count) values ($1, $2, $3, $4) returning id',
    [call, batchId, root, rows.length],
  )
  const taken = await connection.query(
    `update transfers set status = 'batched', batch = $1, updated_at = clock_timestamp()
      where id = any($2::uuid[]) and status = 'received' returning id`,
    [batch!.id, ids],
  )
  // By another gateway. The contract's batch number would reveal it too, but later.
  if (taken.length !== rows.length) throw new Error('some of these transfers are in another batch already')
  await connection.query(
    `insert into batch_rows (batch, position, transfer, receipt_hash)
     select $1, position, id, receipt_hash
       from unnest($2::uuid[], $3::text[]) with ordinality as rows (id, receipt_hash, position)`,
    [batch!.id, ids, textArray(rows.map(({ receiptHash }) => receiptHash))],
  )
}
