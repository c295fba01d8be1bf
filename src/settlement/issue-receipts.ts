import type { Hex } from 'viem'
import type { Database } from '../db/database.ts'
import { formatRequestId, type RequestId } from '../ledger/request-id.ts'
import { type EndedRow, type NumberedReceipt, type ReceiptHead, writeReceipts } from '../ledger/settlements.ts'
import { nonceOf } from '../signer/nonce.ts'
import type { PaymentTerms } from './authorization.ts'
import { noHash, type Receipt, receiptHash } from './receipt.ts'

const rowsMax = 500

/** Chains the receipts of requests that have ended since. Returns how many were written. */
export async function issueReceipts(database: Database, terms: PaymentTerms): Promise<number> {
  return writeReceipts(database, rowsMax, terms.epoch, (rows, heads) => chainReceipts(rows, heads, terms))
}

/** One after the other per account, each on the hash of the one before it. */
function chainReceipts(
  rows: readonly EndedRow[],
  heads: readonly ReceiptHead[],
  terms: PaymentTerms,
): readonly NumberedReceipt[] {
  const last = new Map<string, NumberedReceipt>(
    heads.map((head) => [head.account_id, { number: head.number, hash: `0x${head.hash.toString('hex')}` }]),
  )
  return rows.map((row) => {
    const before = last.get(row.account_id) ?? { number: 0n, hash: noHash }
    const receipt = receiptOf(row, before.number + 1n, before.hash as Hex, terms.epoch)
    const next = { number: receipt.number, hash: receiptHash(receipt, terms) }
    last.set(row.account_id, next)
    return next
  })
}

/** The receipt of a row, whenever it is asked for: a pure function of what is stored, its epoch included. */
export function receiptOf(row: EndedRow, number: bigint, previous: Hex, epoch: number): Receipt {
  return {
    request: row.status === null ? `debt_${row.id.replaceAll('-', '')}` : formatRequestId(row.id as RequestId),
    payer: row.address as Hex,
    number,
    previous,
    createdAt: BigInt((row.created_at ?? row.ended_at).getTime()),
    endedAt: BigInt(row.ended_at.getTime()),
    // The second receipt of a request takes its charge back.
    status: row.revision === 0 ? (row.status ?? 'debt') : 'superseded',
    model: row.model ?? '',
    prices: row.price_version ?? '',
    promptTokens: BigInt(row.prompt_tokens ?? 0),
    completionTokens: BigInt(row.completion_tokens ?? 0),
    searchCalls: BigInt(row.search_calls ?? 0),
    quote: row.quote ?? 0n,
    charged: row.charged,
    authorized: row.value,
    nonce: row.nonce === null ? noHash : nonceOf('authorization', row.account_id, epoch, row.nonce),
  }
}
