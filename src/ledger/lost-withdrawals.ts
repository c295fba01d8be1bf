import { randomUUID } from 'node:crypto'
import type { Connection, Database } from '../db/database.ts'

// A ledger that was restored from a copy has forgotten the withdrawals after it. The chain has not: their money is gone.

/** A payment out of an account that the chain has and these books do not. */
export type LostWithdrawal = {
  /** The log's own: however often it is found, it is one withdrawal. */
  readonly id: string
  /** What the owner was paid, and what the gateway kept. */
  readonly value: bigint
  readonly fee: bigint
  readonly recipient: string
  readonly transactionHash: string
}

export type KnownOrder = {
  readonly id: string
  readonly value: bigint
  readonly recipient: string
}

type AccountId = { readonly partition: number; readonly id: string }

/** Every withdrawal of the account that these books have. */
export async function listOrders(database: Database, { partition, id }: AccountId): Promise<readonly KnownOrder[]> {
  return database.query<KnownOrder>(
    'select id, amount - fee_max as value, recipient from withdrawals where partition = $1 and account_id = $2',
    [partition, id],
  )
}

/** Credit that the seller paid back into the account, and the first nonce after those it was paid under. */
export type LostReturns = { readonly value: bigint; readonly nonceNext: bigint }

/**
 * Takes withdrawals into the books, with the credit that was paid back for them. Which part was for which nobody can say any more,
 * and nothing depends on it. Credit that came back for an order that was never given stays in the balance, as after a failed one.
 * In one transaction with the account's payments, as these.
 */
export async function bookLostWithdrawals(
  connection: Connection,
  account: AccountId,
  withdrawals: readonly LostWithdrawal[],
  returns: LostReturns,
): Promise<void> {
  const { partition, id } = account
  await connection.query('select 1 from accounts where partition = $1 and id = $2 for no key update', [partition, id])
  let back = returns.value
  for (const { value, fee, ...withdrawal } of withdrawals) {
    const amount = value + fee
    const creditBack = back < amount ? back : amount
    const row = { ...withdrawal, amount, fee, creditBack, state: 'confirmed' as const }
    if (await insert(connection, account, row)) back -= creditBack
  }
  if (back > 0n) {
    const recipient = `0x${'0'.repeat(40)}`
    await insert(connection, account, {
      id: randomUUID(),
      amount: back,
      fee: 0n,
      creditBack: back,
      recipient,
      state: 'failed',
    })
  }
  await connection.query('update accounts set nonce_next = greatest(nonce_next, $3) where partition = $1 and id = $2', [
    partition,
    id,
    returns.nonceNext,
  ])
}

/** The most that open withdrawals leave at the gateway beyond what is owed: credit that came back, orders that were not carried out. */
export async function sumUnderWay(database: Database, { partition, id }: AccountId): Promise<bigint> {
  const [row] = await database.query<{ sum: bigint }>(
    `select coalesce(sum(case when state = 'returning' then credit_back else amount end), 0)::bigint as sum from withdrawals
      where partition = $1 and account_id = $2 and state in ('returning', 'returned', 'sent')`,
    [partition, id],
  )
  return row!.sum
}

type WithdrawalRow = {
  readonly id: string
  readonly amount: bigint
  readonly fee: bigint
  readonly creditBack: bigint
  readonly recipient: string
  readonly transactionHash?: string
  readonly state: 'confirmed' | 'failed'
}

async function insert(connection: Connection, account: AccountId, row: WithdrawalRow): Promise<boolean> {
  const { partition, id: accountId } = account
  const isPaid = row.state === 'confirmed'
  const inserted = await connection.query(
    `insert into withdrawals (partition, id, account_id, amount, fee_max, fee, credit_back, recipient, state, reason, tx_hash)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'forgotten by the copy', decode($10, 'hex'))
     on conflict do nothing returning true`,
    [
      partition,
      row.id,
      accountId,
      row.amount,
      row.fee,
      isPaid ? row.fee : null,
      row.creditBack,
      row.recipient,
      row.state,
      row.transactionHash?.slice(2) ?? null,
    ],
  )
  if (inserted.length === 0) return false
  const withdrawn = isPaid ? row.amount : 0n
  await connection.query(
    `update accounts set gateway = gateway - $3 + $4, credit = credit - $4, returned = returned + $4, withdrawn = withdrawn + $3
      where partition = $1 and id = $2`,
    [partition, accountId, withdrawn, row.creditBack],
  )
  return true
}
