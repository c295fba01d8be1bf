import type { Connection, Database } from '../db/database.ts'
import { fromAtomic, type Usdc } from '../money/usdc.ts'
import { refundable } from './replays.ts'
import { openTransferStates } from './states.ts'
import { findTransfer, type Transfer } from './transfers.ts'

/** Reads the seller's current balance at the gateway. */
export type ReadBalance = () => Promise<bigint>

/** Serializes decisions about the seller's revenue: two of them must not spend the same balance. */
export async function lockRevenue(connection: Connection): Promise<void> {
  await connection.query(`select pg_advisory_xact_lock(hashtextextended('penny payout', 0))`)
}

/**
 * What may be paid out: the seller's balance at the gateway, less what the seller owes to accounts or may still owe for refunds of
 * retried requests, less open payouts. The ledger is read before the balance: money that leaves in between only lowers the result,
 * and money that arrives was recorded before it was submitted.
 */
export async function readPayable(connection: Connection, readBalance: ReadBalance): Promise<Usdc> {
  const [row] = await connection.query<{ owed: bigint; open: bigint }>(
    `select (${owedBack})::bigint + (${uncredited})::bigint + (${refundable})::bigint as owed,
            (select coalesce(sum(amount), 0) from transfers where state in ${openTransferStates} and kind = 'payout')::bigint as open`,
  )
  const left = (await readBalance()) - row!.owed - row!.open
  return fromAtomic(left > 0n ? left : 0n)
}

/**
 * The most that the seller owes to accounts: what they paid beyond their charges. The seller may already have the money of a payment
 * whose completion is not recorded yet (`covered`), and may still have the money of an open refund. What a wallet spent of a payment
 * that failed later is the seller's loss (`lost`): it is charged, but reduces no other credit of that wallet.
 */
const owedBack = `
  select coalesce(sum(greatest(0, greatest(a.paid, a.covered + coalesce(r.amount, 0)) + a.lost - a.charged + a.given_back)), 0)
    from accounts a
    left join (select t.partition, t.account_id, sum(t.amount) as amount from transfers t
                where t.state in ${openTransferStates} and t.kind = 'refund' group by t.partition, t.account_id) r
      on r.partition = a.partition and r.account_id = a.id`

/** The most that wallets have paid and that is not credited yet. A statement of its own: Citus refuses it as a subquery of the other. */
const uncredited = `
  select coalesce(sum(p.amount), 0) from transfers p where p.state in ${openTransferStates} and p.state = 'sent' and p.kind = 'x402'`

/** Payouts belong to no account, so all are in one partition. */
export const payoutPartition = 0

/** Only under `lockRevenue`, and for at most what `readPayable` returned. */
export async function insertPayout(
  connection: Connection,
  { id, amount, feeMax, counterparty }: Pick<Transfer, 'id' | 'amount' | 'feeMax' | 'counterparty'>,
): Promise<void> {
  await connection.query(
    `insert into transfers (partition, id, kind, amount, fee_max, counterparty) values ($1, $2, 'payout', $3, $4, $5)`,
    [payoutPartition, id, amount, feeMax, counterparty],
  )
}

/** The open payout to that address, or else the last one that was paid. */
export async function findLatestPayout(
  database: Database,
  recipient: string,
): Promise<{ readonly id: string; readonly isOpen: boolean; readonly paidSecondsAgo: number } | undefined> {
  const [row] = await database.query<{ id: string; state: string; seconds: number }>(
    `select id, state, extract(epoch from clock_timestamp() - changed_at)::float8 as seconds from transfers
      where partition = $1 and kind = 'payout' and counterparty = $2 and state <> 'failed'
      order by state = 'confirmed', created_at desc limit 1`,
    [payoutPartition, recipient],
  )
  return row && { id: row.id, isOpen: row.state !== 'confirmed', paidSecondsAgo: row.seconds }
}

export function findPayout(database: Database, id: string): Promise<Transfer | undefined> {
  return findTransfer(database, { partition: payoutPartition, id })
}
