import { isLongerAgo } from '../db/clock.ts'
import type { Connection, Database } from '../db/database.ts'
import { fromAtomic, type Usdc } from '../money/usdc.ts'
import type { Hex } from '../receipts/hex.ts'
import { refundable } from './replays.ts'
import { openWithdrawalStates, openX402States, type WithdrawalState } from './states.ts'
import { pauseOfWithdrawal, type WithdrawalStep } from './withdrawals.ts'

/** Revenue of the seller that is paid to the operator or the relayer. */
export type Payout = {
  readonly id: string
  /** The total that leaves the seller. The recipient gets `amount - feeMax`. */
  readonly amount: Usdc
  readonly feeMax: Usdc
  readonly recipient: string
  readonly state: WithdrawalState
  /** How often the intent was submitted. */
  readonly attempts: number
  readonly gatewayId: string | undefined
  /** Set before the intent may have been submitted. */
  readonly signature: Hex | undefined
}

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
            (select coalesce(sum(amount), 0) from payouts where state in ${openWithdrawalStates})::bigint as open`,
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
  select coalesce(sum(greatest(0, greatest(a.paid, a.covered + coalesce(r.amount, 0)) + coalesce(l.amount, 0) - a.charged + a.given_back)), 0)
    from accounts a
    left join (select w.partition, w.account_id, sum(w.amount) as amount from withdrawals w
                where w.state in ${openWithdrawalStates} and w.refund is not null group by w.partition, w.account_id) r
      on r.partition = a.partition and r.account_id = a.id
    left join (select p.partition, p.account_id, sum(p.lost) as amount from x402_payments p
                where p.lost > 0 group by p.partition, p.account_id) l
      on l.partition = a.partition and l.account_id = a.id`

/** The most that wallets have paid and that is not credited yet. A statement of its own: Citus refuses it as a subquery of the other. */
const uncredited = `
  select coalesce(sum(p.value), 0) from x402_payments p where p.state in ${openX402States} and p.state = 'submitted'`

/** Only under `lockRevenue`, and for at most what `readPayable` returned. */
export async function insertPayout(
  connection: Connection,
  { id, amount, feeMax, recipient }: Pick<Payout, 'id' | 'amount' | 'feeMax' | 'recipient'>,
): Promise<void> {
  await connection.query(
    `insert into payouts (id, amount, fee_max, recipient, state) values ($1, $2, $3, $4, 'requested')`,
    [id, amount, feeMax, recipient],
  )
}

/** Open payouts that were not tried just now, the longest untried first. */
export async function findOpenPayouts(database: Database, limit: number): Promise<readonly Payout[]> {
  const rows = await database.queryPrepared<PayoutRow>(
    'find_open_payouts',
    `select id, amount, fee_max, recipient, state, attempts, gateway_id, encode(signature, 'hex') as signature
       from payouts where state in ${openWithdrawalStates} and ${isLongerAgo('changed_at', pauseOfWithdrawal)}
      order by changed_at limit $1`,
    [limit],
  )
  return rows.map(({ fee_max, gateway_id, signature, ...row }) => ({
    ...row,
    amount: fromAtomic(row.amount),
    feeMax: fromAtomic(fee_max),
    gatewayId: gateway_id ?? undefined,
    signature: signature === null ? undefined : `0x${signature}`,
  }))
}

/** Moves an open payout to the end of the queue. */
export async function touchPayout(database: Database, { id, state }: Pick<Payout, 'id' | 'state'>): Promise<void> {
  await database.query('update payouts set changed_at = now() where id = $1 and state = $2', [id, state])
}

/** As `advance_withdrawal`. False when the payout has ended or was submitted again meanwhile. */
export async function advancePayout(
  database: Database,
  { id, attempts }: Pick<Payout, 'id' | 'attempts'>,
  step: WithdrawalStep & { readonly signature?: Hex | undefined },
): Promise<boolean> {
  const moved = await database.query(
    `update payouts set state = $2, gateway_id = coalesce($3, gateway_id), tx_hash = coalesce(decode($4, 'hex'), tx_hash), reason = $5,
            fee = $6, signature = coalesce(decode($7, 'hex'), signature), changed_at = now(),
            attempts = attempts + case when $2 = 'sent' and $3::text is null then 1 else 0 end
      where id = $1 and state in ${openWithdrawalStates} and (attempts = $8 or $3::text is not null) returning id`,
    [
      id,
      step.state,
      step.gatewayId ?? null,
      step.transactionHash?.slice(2) ?? null,
      step.reason ?? null,
      step.fee ?? null,
      step.signature?.slice(2) ?? null,
      attempts,
    ],
  )
  return moved.length > 0
}

/** The open payout to that address, or else the last one that was paid. */
export async function findLatestPayout(
  database: Database,
  recipient: string,
): Promise<{ readonly id: string; readonly isOpen: boolean; readonly paidSecondsAgo: number } | undefined> {
  const [row] = await database.query<{ id: string; state: string; seconds: number }>(
    `select id, state, extract(epoch from clock_timestamp() - changed_at)::float8 as seconds from payouts
      where recipient = $1 and state <> 'failed' order by state = 'confirmed', created_at desc limit 1`,
    [recipient],
  )
  return row && { id: row.id, isOpen: row.state !== 'confirmed', paidSecondsAgo: row.seconds }
}

export async function findPayout(
  database: Database,
  id: string,
): Promise<{ readonly state: string; readonly reason: string | null; readonly txHash: string | null } | undefined> {
  const [row] = await database.query<{ state: string; reason: string | null; tx_hash: string | null }>(
    `select state, reason, encode(tx_hash, 'hex') as tx_hash from payouts where id = $1`,
    [id],
  )
  return row && { state: row.state, reason: row.reason, txHash: row.tx_hash === null ? null : `0x${row.tx_hash}` }
}

type PayoutRow = {
  readonly id: string
  readonly amount: bigint
  readonly fee_max: bigint
  readonly recipient: string
  readonly state: WithdrawalState
  readonly attempts: number
  readonly gateway_id: string | null
  readonly signature: string | null
}
