import type { Connection, Database } from '../db/database.ts'
import { lockAccount } from '../db/lock-account.ts'

// A ledger that was restored from a backup lacks the withdrawals after it. The chain shows that their money was paid out.

/** A withdrawal that is on chain and that the ledger lacks. */
export type LostWithdrawal = {
  /** Derived from the log: however often it is found, it is one withdrawal. */
  readonly id: string
  /** The amount that the owner received, and the gateway's fee. */
  readonly value: bigint
  readonly fee: bigint
  readonly recipient: string
  readonly transactionHash: string
}

export type KnownWithdrawal = {
  readonly id: string
  readonly value: bigint
  readonly recipient: string
}

type AccountId = { readonly partition: number; readonly id: string }

/** All withdrawals of the account in the ledger. */
export async function listWithdrawals(
  database: Database,
  { partition, id }: AccountId,
): Promise<readonly KnownWithdrawal[]> {
  return database.query<KnownWithdrawal>(
    "select id, amount - fee_max as value, counterparty as recipient from transfers where partition = $1 and account_id = $2 and kind = 'withdrawal'",
    [partition, id],
  )
}

/** Books lost withdrawals, in one transaction with the account's payments. */
export async function bookLostWithdrawals(
  connection: Connection,
  { partition, id: accountId }: AccountId,
  withdrawals: readonly LostWithdrawal[],
): Promise<void> {
  await lockAccount(connection, { partition, accountId })
  for (const { id, value, fee, recipient, transactionHash } of withdrawals) {
    const inserted = await connection.query(
      `insert into transfers (partition, id, kind, account_id, amount, from_credit, fee_max, fee, after_entry, counterparty, state, reason, tx_hash)
       select $1, $2, 'withdrawal', $3, $4::bigint, greatest(0, $4::bigint - a.gateway), $5, $5, a.entries, $6, 'confirmed', 'missing from the copy',
              decode($7, 'hex')
         from accounts a where a.partition = $1 and a.id = $3
       on conflict do nothing returning true`,
      [partition, id, accountId, value + fee, fee, recipient, transactionHash.slice(2)],
    )
    if (inserted.length === 0) continue
    await connection.query(
      `update accounts set gateway = gateway - least(gateway, $3), credit = credit - greatest(0, $3 - gateway), withdrawn = withdrawn + $3
        where partition = $1 and id = $2`,
      [partition, accountId, value + fee],
    )
  }
}

/** The most that open withdrawals may still leave at the gateway: they may not have been executed. */
export async function sumUnderWay(database: Database, { partition, id }: AccountId): Promise<bigint> {
  const [row] = await database.query<{ sum: bigint }>(
    `select coalesce(sum(amount), 0)::bigint as sum from transfers
      where partition = $1 and account_id = $2 and kind = 'withdrawal' and state in ('sent', 'received')`,
    [partition, id],
  )
  return row!.sum
}
