import { randomUUID } from 'node:crypto'
import { readClock } from '../db/clock.ts'
import type { Connection, Database } from '../db/database.ts'
import { lockAccount } from '../db/lock-account.ts'
import { createRequestId } from './request-id.ts'
import type { PaymentState } from './states.ts'
import type { Transfer } from './transfers.ts'
import { registerWallet, type X402Wallet } from './wallet-accounts.ts'
import { acceptedPayment, creditPayment, idOf } from './x402-payments.ts'

// A ledger that was restored from a backup lacks what happened after it. The gateway and the chain have the transfers.

type AccountId = { readonly partition: number; readonly id: string }

/** A payment that the gateway has and the ledger lacks. */
export type LostPayment = {
  readonly number: bigint
  readonly epoch: number
  /** Below 0 the seller paid the account. */
  readonly value: bigint
  /** The payment's state at the gateway. */
  readonly state: Extract<PaymentState, 'received' | 'batched' | 'completed'>
  readonly gatewayId: string
  readonly batch: bigint | undefined
  readonly transactionHash: string | undefined
}

/**
 * Books lost payments of an account, in the order of their numbers. Each covers the unpaid entries in the ledger, plus one new
 * entry for the rest: the charges of the lost requests. Book everything that the account has lost in one transaction: the next
 * search begins at the first payment that the ledger lacks.
 */
export async function bookLostPayments(
  connection: Connection,
  { partition, id }: AccountId,
  payments: readonly LostPayment[],
): Promise<void> {
  await lockAccount(connection, { partition, accountId: id })
  for (const payment of payments.toSorted((one, other) => Number(one.number - other.number))) {
    const { number, epoch, value, state, gatewayId, batch, transactionHash } = payment
    const [books] = await connection.query<{ entries: bigint; covered_entry: bigint; unpaid: bigint }>(
      'select entries, covered_entry, charged - given_back - covered as unpaid from accounts where partition = $1 and id = $2',
      [partition, id],
    )
    const { entries, covered_entry: covered, unpaid } = books!
    const forgotten = value - unpaid
    const last = forgotten === 0n && entries > covered ? entries : entries + 1n
    if (last > entries)
      await connection.query(insertEntry, [partition, randomUUID(), id, last, -forgotten, `payment ${number}`])
    const hash = transactionHash?.slice(2) ?? null
    const range = [partition, id, number, covered + 1n, last, value]
    await connection.query(insertPayment, [...range, epoch, state, gatewayId, batch ?? null, hash])
    const paid = state === 'completed' ? value : 0n
    await connection.query(moveCharge, [partition, id, forgotten, last, value, paid, number])
  }
}

const insertEntry = `
  insert into adjustments (partition, id, account_id, entry, kind, amount, reason, made_by)
  values ($1, $2, $3, $4, 'recovery', $5, 'Requests that the restored ledger does not have, paid by ' || $6, 'penny recover')`

const insertPayment = `
  insert into payments (partition, account_id, number, first_entry, last_entry, value, epoch, state, reason, gateway_id, batch, tx_hash,
                        created_at, authorized_at, changed_at)
  values ($1, $2, $3, $4, $5, $6, $7, $8, 'recovered', $9, $10, decode($11, 'hex'), now(), now(), now())`

// Take credit last, as a withdrawal does.
const moveCharge = `
  update accounts a
     set gateway = a.gateway - least(a.gateway, $3), credit = a.credit - ($3 - least(a.gateway, $3)), charged = a.charged + $3,
         entries = greatest(a.entries, $4), covered_entry = $4, covered = a.covered + $5, paid = a.paid + $6,
         payments = greatest(a.payments, $7), unpaid_since = null
   where a.partition = $1 and a.id = $2`

/** A withdrawal or refund that was made and that the ledger lacks. Its id is derived: however often it is found, it is one. */
export type LostTransfer = Pick<Transfer, 'id' | 'partition' | 'accountId' | 'counterparty'> & {
  readonly kind: 'withdrawal' | 'refund'
  readonly amount: bigint
  readonly fee: bigint
  readonly state: 'received' | 'confirmed'
  readonly transactionHash: string | undefined
  /** Of a refund. */
  readonly gatewayId?: string
  readonly sequence?: bigint
  readonly epoch?: number
}

/**
 * Books a lost withdrawal or refund of an account that is locked, with the money that its request took. What a refund returns is no
 * longer part of what the wallet has paid in.
 */
export async function bookLostTransfer(connection: Connection, lost: LostTransfer): Promise<void> {
  const { partition, accountId, kind, amount, state, sequence } = lost
  const inserted = await connection.query(insertTransfer, [
    partition,
    lost.id,
    kind,
    accountId,
    amount,
    lost.fee,
    lost.counterparty,
    state,
    lost.gatewayId ?? null,
    lost.transactionHash?.slice(2) ?? null,
    sequence ?? null,
    lost.epoch ?? null,
  ])
  if (inserted.length === 0) return
  const refunded = kind === 'refund' ? amount : 0n
  const paid = state === 'confirmed' ? refunded : 0n
  const transfers = kind === 'refund' ? 1 : 0
  await connection.query(moveOut, [partition, accountId, amount, refunded, paid, sequence ?? 0n, transfers])
}

const insertTransfer = `
  insert into transfers (partition, id, kind, account_id, amount, from_credit, fee_max, fee, after_entry, counterparty, state, reason,
                         gateway_id, tx_hash, sequence, epoch)
  select $1, $2, $3, $4, $5::bigint, greatest(0, $5::bigint - a.gateway), $6::bigint, case when $8 = 'confirmed' then $6::bigint end,
         a.entries, $7, $8, 'missing from the copy', $9, decode($10, 'hex'), $11::bigint, $12::bigint
    from accounts a where a.partition = $1 and a.id = $4
  on conflict do nothing returning true`

const moveOut = `
  update accounts
     set gateway = gateway - least(gateway, $3), credit = credit - greatest(0, $3 - gateway), withdrawn = withdrawn + $3,
         covered = covered - $4, paid = paid - $5, payments = greatest(payments, $6), transfers = transfers + $7
   where partition = $1 and id = $2`

/**
 * Books a refund that the seller has paid. `known`: the ledger has that refund, and settlement tracks it. `unpaid`: the account has
 * less credit than that, even with all its payments.
 */
export async function bookLostRefund(database: Database, lost: LostTransfer): Promise<'recorded' | 'known' | 'unpaid'> {
  const { partition, accountId, sequence, epoch, amount } = lost
  return database.transaction(async (connection) => {
    await lockAccount(connection, lost)
    const known = await connection.query(
      "select from transfers where partition = $1 and account_id = $2 and kind = 'refund' and sequence = $3 and epoch = $4",
      [partition, accountId, sequence, epoch],
    )
    if (known.length > 0) return 'known'
    const able = await connection.query(
      'select from accounts where partition = $1 and id = $2 and credit - extended >= $3',
      [partition, accountId, amount],
    )
    if (able.length === 0) return 'unpaid'
    await bookLostTransfer(connection, lost)
    return 'recorded'
  })
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

/** The number of the first payment that the ledger lacks. */
export async function readNextPayment(database: Database, { partition, id }: AccountId): Promise<bigint> {
  const [row] = await database.query<{ next: bigint }>(
    'select payments + 1 as next from accounts where partition = $1 and id = $2',
    [partition, id],
  )
  return row!.next
}

export type KnownWithdrawal = {
  readonly id: string
  /** What the recipient gets. */
  readonly value: bigint
  readonly recipient: string
  /** It may not have been executed: then its amount is still at the gateway. */
  readonly isOpen: boolean
  readonly amount: bigint
}

/** All withdrawals of the account in the ledger. */
export async function listWithdrawals(
  database: Database,
  { partition, id }: AccountId,
): Promise<readonly KnownWithdrawal[]> {
  return database.query<KnownWithdrawal>(
    `select id, amount - fee_max as value, amount, counterparty as recipient, state in ('sent', 'received') as "isOpen"
       from transfers where partition = $1 and account_id = $2 and kind = 'withdrawal'`,
    [partition, id],
  )
}

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
