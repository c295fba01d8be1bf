import { readClock } from '../db/clock.ts'
import type { Connection, Database } from '../db/database.ts'
import { derivedId } from '../db/derived-id.ts'
import { lockAccount } from '../db/lock-account.ts'
import { createRequestId } from './request-id.ts'
import { registerWallet, type X402Wallet } from './wallet-accounts.ts'
import { acceptedPayment, creditPayment, idOf } from './x402-payments.ts'

// A ledger that was restored from a backup lacks later payments of wallets and refunds to them. The gateway has both.

/**
 * Selects the transfers that the ledger has, as a payment or a refund, and whether it had them before it was frozen: those were in the
 * backup.
 */
export async function findKnownTransfers(
  database: Database,
  gatewayIds: readonly string[],
): Promise<ReadonlyMap<string, { readonly isOfCopy: boolean }>> {
  const rows = await database.query<{ id: string; of_copy: boolean }>(
    `with known as (
       select gateway_id as id, created_at from payments where gateway_id = any ($1)
       union all select gateway_id, created_at from transfers where gateway_id = any ($1))
     select id, created_at < coalesce((select frozen_at from ledger_state), '-infinity') as of_copy from known`,
    [gatewayIds],
  )
  return new Map(rows.map(({ id, of_copy }) => [id, { isOfCopy: of_copy }]))
}

/** Selects the addresses that belong to accounts. Their payments are recovered account by account. */
export async function findAccountAddresses(database: Database, addresses: readonly string[]): Promise<Set<string>> {
  const rows = await database.query<{ address: string }>('select address from accounts where address = any ($1)', [
    addresses,
  ])
  return new Set(rows.map(({ address }) => address))
}

export type LostX402Payment = {
  readonly wallet: X402Wallet
  readonly nonce: Buffer
  readonly value: bigint
  readonly gatewayId: string
}

/**
 * Credits a payment in full: the paid request is lost, and with it its cost. The signature is lost too, so 65 zero bytes
 * stand for it. False when it was credited before.
 */
export async function creditLostPayment(database: Database, lost: LostX402Payment): Promise<boolean> {
  const { wallet, nonce, value, gatewayId } = lost
  await registerWallet(database, wallet)
  return database.transaction(async (connection) => {
    const requestId = createRequestId(wallet.partition, (await readClock(connection)).getTime())
    await connection.query(
      `insert into transfers (partition, id, kind, state, counterparty, nonce, account_id, amount, valid_after, valid_before, signature,
                              request_id, sent_at)
       values ($1, $2, 'x402', 'sent', $3, $4, $5, $6, 0, 0, decode(repeat('00', 65), 'hex'), $7, now()) on conflict do nothing`,
      [wallet.partition, idOf({ wallet, nonce }), wallet.address, nonce, wallet.accountId, value, requestId],
    )
    return creditPayment(connection, wallet, acceptedPayment({ wallet, nonce }, gatewayId))
  })
}

export type LostRefund = {
  readonly wallet: X402Wallet
  readonly amount: bigint
  /** The sequence in the nonce of the seller's authorization. */
  readonly sequence: bigint
  readonly epoch: number
  readonly isCompleted: boolean
  readonly gatewayId: string
  readonly transactionHash: string | undefined
}

/**
 * Records a refund that the seller has paid. `known`: the ledger has that refund, and settlement tracks it. `unpaid`: the account has
 * less credit than that, even with all its payments.
 */
export async function recordLostRefund(database: Database, lost: LostRefund): Promise<'recorded' | 'known' | 'unpaid'> {
  const { wallet, sequence } = lost
  return database.transaction(async (connection) => {
    await lockAccount(connection, wallet)
    const known = await connection.query(
      "select from transfers where partition = $1 and account_id = $2 and kind = 'refund' and sequence = $3 and epoch = $4",
      [wallet.partition, wallet.accountId, sequence, lost.epoch],
    )
    if (known.length > 0) return 'known'
    const [account] = await connection.query<{ refundable: bigint }>(
      'select credit - extended as refundable from accounts where partition = $1 and id = $2',
      [wallet.partition, wallet.accountId],
    )
    if (account === undefined || account.refundable < lost.amount) return 'unpaid'
    await insertRefund(connection, lost)
    return 'recorded'
  })
}

async function insertRefund(connection: Connection, lost: LostRefund): Promise<void> {
  const { wallet, amount, sequence, epoch, isCompleted, gatewayId, transactionHash } = lost
  const { partition, accountId } = wallet
  await connection.query(
    `insert into transfers (partition, id, kind, account_id, amount, from_credit, fee, after_entry, counterparty, state, reason, gateway_id,
                            tx_hash, sequence, epoch)
     select $1, $2, 'refund', $3, $4::bigint, $4::bigint, $5::bigint, a.entries, $6, $7, 'missing from the copy', $8, decode($9, 'hex'), $10, $11
       from accounts a where a.partition = $1 and a.id = $3`,
    [
      partition,
      derivedId(`penny x402 refund ${gatewayId}`),
      accountId,
      amount,
      isCompleted ? 0n : null,
      wallet.address,
      isCompleted ? 'confirmed' : 'received',
      gatewayId,
      transactionHash?.slice(2) ?? null,
      sequence,
      epoch,
    ],
  )
  await connection.query(
    `update accounts set credit = credit - $3, withdrawn = withdrawn + $3, covered = covered - $3, paid = paid - $4,
            payments = greatest(payments, $5), transfers = transfers + 1
      where partition = $1 and id = $2`,
    [partition, accountId, amount, isCompleted ? amount : 0n, sequence],
  )
}
