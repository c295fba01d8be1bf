import { type Hex, hashStruct } from 'viem'
import type { Database } from '../db/database.ts'
import { partitionOf, type RequestId } from '../ledger/request-id.ts'
import { findSettledRow, type SettledRow } from '../ledger/settlements.ts'
import type { Address } from '../signer/address.ts'
import type { Signer } from '../signer/signer.ts'
import type { PaymentTerms } from './authorization.ts'
import { receiptOf } from './issue-receipts.ts'
import { noHash, type Receipt, type ReceiptDocument, receiptHash, receiptTypes, writeReceipt } from './receipt.ts'

export type ReceiptParts = {
  readonly database: Database
  readonly signer: Pick<Signer, 'signReceipt'>
  readonly terms: PaymentTerms
  readonly issuer: Address
}

/** The newest receipt of a request, signed when it is first read. Undefined while it has none. */
export async function findReceipt(parts: ReceiptParts, id: RequestId): Promise<ReceiptDocument | undefined> {
  const { database, terms, issuer } = parts
  const row = await findSettledRow(database, partitionOf(id), id)
  if (row === undefined) return undefined
  const receipt = receiptOf(row, row.receipt_number, previousOf(row.previous_hash), Number(row.epoch))
  const hash = receiptHash(receipt, terms)
  return {
    object: 'receipt',
    version: 1,
    receipt: writeReceipt(receipt),
    domain: { chain_id: terms.chainId, gateway_wallet: terms.gatewayWallet },
    hash,
    issuer,
    signature: row.signature === null ? await sign(parts, row, receipt) : `0x${row.signature.toString('hex')}`,
    ...(row.tx_hash === null || row.receipt_root === null ? {} : { batch: batchOf(row) }),
  }
}

async function sign({ database, signer }: ReceiptParts, row: SettledRow, receipt: Receipt): Promise<Hex> {
  const structHash = hashStruct({ data: receipt, primaryType: 'Receipt', types: receiptTypes })
  const signature = await signer.signReceipt(structHash)
  await database.query(
    `update settlements set signature = decode($4, 'hex') where partition = $1 and id = $2 and revision = $3`,
    [row.partition, row.id, row.revision, signature.slice(2)],
  )
  return signature
}

function batchOf({ batch, tx_hash, receipt_root, receipt_proof }: SettledRow): NonNullable<ReceiptDocument['batch']> {
  const proof = receipt_proof?.toString('hex').match(/.{64}/g) ?? []
  return {
    id: String(batch),
    tx_hash: `0x${tx_hash!.toString('hex')}`,
    root: `0x${receipt_root!.toString('hex')}`,
    proof: proof.map((hash): Hex => `0x${hash}`),
  }
}

function previousOf(hash: Buffer | null): Hex {
  return hash === null ? noHash : `0x${hash.toString('hex')}`
}
