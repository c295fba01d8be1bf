import type { Database } from '../src/db/database.ts'

/** The contents and cost of a batch. Gas is paid in the native coin: wei, 18 decimals. */
export type BatchReport = {
  readonly batchId: string
  readonly state: 'sent' | 'settled' | 'released'
  readonly transactionHash: string | null
  readonly receiptRoot: string
  readonly rowCount: number
  readonly settledCount: number | null
  readonly settledValue: string | null
  readonly gasUsed: string | null
  readonly gasCostWei: string | null
}

/** The gas of all batches so far, including those that reverted. */
export async function sumBatchGas(database: Database): Promise<string> {
  const [row] = await database.query<{ gas: string }>(
    `select coalesce(sum(gas_used), 0)::text as gas from calls where kind = 'batch'`,
  )
  return row!.gas
}

/** Newest first. */
export async function readBatches(database: Database, count: number): Promise<readonly BatchReport[]> {
  return database.query<BatchReport>(
    `select chain_batch_id::text as "batchId", batches.state, hash as "transactionHash", receipt_root as "receiptRoot",
            row_count as "rowCount", settled_count as "settledCount", settled_value::text as "settledValue",
            gas_used::text as "gasUsed", gas_cost::text as "gasCostWei"
       from batches join calls on calls.id = call order by batches.id desc limit $1`,
    [count],
  )
}
