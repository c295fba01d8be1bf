import { getAddress, type Hash, type Hex } from 'viem'
import type { Database } from '../src/db/database.ts'
import type { BatchPlace, BatchReceipts } from './batch-receipts.ts'
import type { ReceiptProof } from './receipt-tree.ts'
import type { GatewayTerms } from './terms.ts'

export const transferStatuses = ['received', 'batched', 'confirmed', 'completed', 'failed'] as const
export type TransferStatus = (typeof transferStatuses)[number]

/** A transfer in API form: Circle's fields, and ours for its proof. */
export type TransferAnswer = {
  readonly id: string
  readonly status: TransferStatus
  readonly token: 'USDC'
  readonly sendingNetwork: string
  readonly recipientNetwork: string
  readonly fromAddress: string
  readonly toAddress: string
  readonly amount: string
  readonly nonce: Hex
  readonly createdAt: string
  readonly updatedAt: string
  readonly failureReason?: string
  readonly batchId?: string
  readonly transactionHash?: Hash
  readonly receipt?: ReceiptProof & { readonly hash: Hex }
  readonly batchPlace?: BatchPlace
}

export type TransferSearch = {
  readonly from?: Hex | undefined
  readonly to?: Hex | undefined
  readonly nonce?: Hex | undefined
  readonly status?: TransferStatus | undefined
  readonly startDate?: Date | undefined
  readonly endDate?: Date | undefined
  readonly pageSize: number
  /** Ids of transfers: the page begins after, or ends before, them. */
  readonly pageAfter?: string | undefined
  readonly pageBefore?: string | undefined
}

export type TransferPage = {
  readonly transfers: readonly TransferAnswer[]
  readonly hasNext: boolean
  readonly hasPrevious: boolean
}

export type TransferRow = {
  readonly id: string
  readonly status: TransferStatus
  readonly payer: Hex
  readonly payee: Hex
  readonly value: bigint
  readonly nonce: Hex
  readonly failure: string | null
  readonly receiptHash: Hex | null
  readonly createdAt: Date
  readonly updatedAt: Date
  readonly batch: bigint | null
  readonly batchId: bigint | null
  readonly transactionHash: Hash | null
}

const columns = `
  transfers.id, status, payer, payee, value, nonce, failure, receipt_hash as "receiptHash",
  transfers.created_at as "createdAt", updated_at as "updatedAt", batch,
  coalesce(batches.chain_batch_id, foreign_batch) as "batchId",
  coalesce(settled_by, (select hash from transactions where transactions.call = batches.call order by created_at desc limit 1),
           (select transaction_hash from foreign_batches where foreign_batches.chain_batch_id = foreign_batch))
    as "transactionHash"`

/** Selects `TransferRow`s, and further columns, from a table or subquery named `transfers`. */
export function selectTransfers(transfers = 'transfers', ...further: readonly string[]): string {
  return `select ${[columns, ...further].join(', ')} from ${transfers} left join batches on batches.id = batch`
}

export async function findTransfer(
  database: Database,
  terms: GatewayTerms,
  receipts: BatchReceipts,
  id: string,
): Promise<TransferAnswer | undefined> {
  const [row] = await database.query<TransferRow>(`${selectTransfers()} where transfers.id = $1`, [id])
  if (row === undefined) return undefined
  return proved(row, terms, receipts)
}

/** The transfer with the proof of its receipt. */
export async function proved(row: TransferRow, terms: GatewayTerms, receipts: BatchReceipts): Promise<TransferAnswer> {
  return { ...answerOf(row, terms), ...(await proofOf(receipts, row)) }
}

/** Newest first. */
export async function searchTransfers(
  database: Database,
  terms: GatewayTerms,
  search: TransferSearch,
): Promise<TransferPage> {
  const { from, to, nonce, status, startDate, endDate, pageSize, pageAfter, pageBefore } = search
  const isBackwards = pageBefore !== undefined
  const rows = await database.query<TransferRow>(
    `${selectTransfers()}
      where ($1::text is null or payer = $1) and ($2::text is null or payee = $2) and ($3::text is null or nonce = $3)
        and ($4::text is null or status = $4)
        and ($5::timestamptz is null or transfers.created_at >= $5) and ($6::timestamptz is null or transfers.created_at < $6)
        and ($7::uuid is null or sequence < (select sequence from transfers where id = $7))
        and ($8::uuid is null or sequence > (select sequence from transfers where id = $8))
      order by sequence ${isBackwards ? 'asc' : 'desc'} limit $9`,
    [
      from ?? null,
      to ?? null,
      nonce ?? null,
      status ?? null,
      startDate ?? null,
      endDate ?? null,
      pageAfter ?? null,
      pageBefore ?? null,
      pageSize + 1,
    ],
  )
  const hasMore = rows.length > pageSize
  const page = rows.slice(0, pageSize)
  if (isBackwards) page.reverse()
  return {
    transfers: page.map((row) => answerOf(row, terms)),
    hasNext: isBackwards || hasMore,
    hasPrevious: isBackwards ? hasMore : pageAfter !== undefined,
  }
}

function answerOf(row: TransferRow, terms: GatewayTerms): TransferAnswer {
  const isBatched = row.status === 'batched' || row.status === 'confirmed' || row.status === 'completed'
  return {
    id: row.id,
    status: row.status,
    token: 'USDC',
    sendingNetwork: terms.network,
    recipientNetwork: terms.network,
    fromAddress: getAddress(row.payer),
    toAddress: getAddress(row.payee),
    amount: row.value.toString(),
    nonce: row.nonce,
    createdAt: row.createdAt.toISOString(),
    updatedAt: row.updatedAt.toISOString(),
    ...(row.failure === null ? {} : { failureReason: row.failure }),
    ...(isBatched && row.batchId !== null ? { batchId: row.batchId.toString() } : {}),
    ...(isBatched && row.transactionHash !== null ? { transactionHash: row.transactionHash } : {}),
  }
}

/** The proof that its receipt is under the root that its batch carries on chain. */
async function proofOf(
  receipts: BatchReceipts,
  { id, batch, status, receiptHash }: TransferRow,
): Promise<Partial<TransferAnswer>> {
  if (receiptHash === null || batch === null || status === 'received' || status === 'failed') return {}
  const proved = await receipts.prove(batch, id)
  if (proved === undefined) return {}
  return { receipt: { hash: receiptHash, ...proved.proof }, batchPlace: proved.place }
}
