import { randomUUID } from 'node:crypto'
import { isLongerAgo } from '../db/clock.ts'
import type { Connection, Database } from '../db/database.ts'
import { OperatorError } from '../errors.ts'
import { refundable } from '../ledger/replays.ts'
import { openWithdrawalStates, openX402States } from '../ledger/states.ts'
import { pauseOfWithdrawal, readWithdrawalFeeMax } from '../ledger/withdrawals.ts'
import { format, fromAtomic, type Usdc } from '../money/usdc.ts'
import type { Hex } from '../receipts/hex.ts'
import type { Address } from '../signer/address.ts'
import { saltOf } from '../signer/nonce.ts'
import { SigningRefusedError } from '../signer/signing-request.ts'
import { burnIntent, payOutMax } from '../signer/signing-terms.ts'
import { isSellerShort } from './solvency.ts'
import type { WithdrawParts } from './withdraw.ts'
import { feeTaken } from './withdrawal-fee.ts'

const payoutsMax = 20

/** Reads the seller's current balance at the gateway. */
export type ReadBalance = () => Promise<bigint>

/**
 * Orders a payout of the seller's revenue. What the seller owes to accounts stays at the gateway. The gateway's fee is deducted from
 * the amount: the recipient gets the amount less the maximum fee.
 */
export async function requestPayout(
  database: Database,
  amount: Usdc | 'all',
  recipient: Address,
  readBalance: ReadBalance,
): Promise<string> {
  const id = randomUUID()
  await database.transaction(async (connection) => {
    await lockRevenue(connection)
    const payable = await readPayable(connection, readBalance)
    const asked = amount === 'all' ? payable : amount
    if (asked <= 0n || asked > payable) throw new PayoutTooLargeError(asked, payable)
    if (asked > payOutMax) throw new PayoutAboveMostError(asked)
    const feeMax = await readWithdrawalFeeMax(connection)
    if (asked <= feeMax) throw new PayoutBelowFeeError(asked, feeMax)
    await connection.query(
      `insert into payouts (id, amount, fee_max, recipient, state) values ($1, $2, $3, $4, 'requested')`,
      [id, asked, feeMax, recipient],
    )
  })
  return id
}

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
 * whose completion is not recorded yet (`covered`), and may still have the money of an open refund.
 */
const owedBack = `
  select coalesce(sum(greatest(0, greatest(a.paid, a.covered + coalesce(r.amount, 0)) - a.charged + a.given_back)), 0)
    from accounts a
    left join (select w.partition, w.account_id, sum(w.amount) as amount from withdrawals w
                where w.state in ${openWithdrawalStates} and w.refund is not null group by w.partition, w.account_id) r
      on r.partition = a.partition and r.account_id = a.id`

/** The most that wallets have paid and that is not credited yet. A statement of its own: Citus refuses it in the list of the other. */
const uncredited = `
  select coalesce(sum(p.value), 0) from x402_payments p where p.state in ${openX402States} and p.state = 'submitted'`

/** Advances every open payout by one step. A failing one does not delay the others. Returns how many are open. */
export async function advancePayouts(parts: WithdrawParts): Promise<number> {
  const { database, onAlarm } = parts
  const open = await database.queryPrepared<PayoutRow>(
    'find_open_payouts',
    `select id, amount, fee_max, recipient, state, attempts, gateway_id, encode(signature, 'hex') as signature from payouts where state in ${openWithdrawalStates}
        and ${isLongerAgo('changed_at', pauseOfWithdrawal)}
      order by changed_at limit $1`,
    [payoutsMax],
  )
  for (const payout of open) {
    try {
      await (payout.gateway_id === null ? order(parts, payout) : awaitPayment(parts, payout))
    } catch (error) {
      onAlarm('a payout is waiting', { payout: payout.id, err: error })
      const isRefused = error instanceof SigningRefusedError && error.reason !== 'hour_cap'
      if (isRefused && payout.state === 'requested') {
        await move(database, payout, 'failed', { reason: `refused: ${error.reason}` })
      }
    }
    // Moves it to the end of the queue.
    await database.query('update payouts set changed_at = now() where id = $1 and state = $2', [
      payout.id,
      payout.state,
    ])
  }
  return open.length
}

async function order(parts: WithdrawParts, payout: PayoutRow): Promise<void> {
  const { id, amount, fee_max, recipient, state } = payout
  const { database, signer, gatewayClient, signingTerms, failpoint, onAlarm } = parts
  // A payout that was submitted before continues: it may already be paid.
  if (state === 'requested' && (await isSellerShort(database))) {
    return onAlarm('a payout waits until the seller has what it owes back', { payout: id })
  }
  const intent = burnIntent(signingTerms, {
    depositor: signingTerms.seller,
    recipient: recipient as Address,
    value: amount - fee_max,
    maxFee: fee_max,
    salt: saltOf('payout', id),
  })
  // A payout that may have been submitted is submitted again unchanged, even if the payout address has changed.
  const signature: Hex =
    state === 'sent' && payout.signature !== null
      ? `0x${payout.signature}`
      : await signer.signPayout({ operation: 'payout', payout: id, intent })
  // Recorded before the call: from here on the payout may be paid, whatever the call returns. The same salt makes a retry the same
  // order. If the payout has ended in the meantime, it is not submitted: its money may already belong to another payout.
  if (!(await move(database, payout, 'sent', { signature }))) return
  const sent = { ...payout, attempts: payout.attempts + 1 }
  failpoint('before_payout')
  const answer = await gatewayClient.withdraw(intent, signature)
  if (answer.state === 'received') {
    await move(database, sent, 'sent', { gatewayId: answer.id })
    return
  }
  onAlarm('the gateway did not take a payout', { payout: id, reason: answer.reason })
  // Refused at the first attempt: it was never accepted. After an unknown outcome a refusal may mean that it was already paid.
  if (answer.state === 'failed' && state === 'requested')
    await move(database, sent, 'failed', { reason: answer.reason })
}

async function awaitPayment(parts: WithdrawParts, payout: PayoutRow): Promise<void> {
  const { id, gateway_id, fee_max } = payout
  const paid = await parts.gatewayClient.withdrawal(gateway_id!)
  if (paid === undefined) {
    parts.onAlarm('the gateway has lost a payout', { payout: id, transfer: gateway_id })
    return order(parts, payout)
  }
  const fee = paid.state === 'confirmed' ? (feeTaken(paid, fee_max) ?? fee_max) : undefined
  if (paid.state === 'failed') parts.onAlarm('a payout failed', { payout: id, reason: paid.reason })
  if (paid.state !== 'pending') await move(parts.database, payout, paid.state, { ...paid, fee })
}

/** The open payout to that address, or else the last one that was paid. */
export async function findLatestPayout(
  database: Database,
  recipient: Address,
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

type PayoutNews = {
  readonly gatewayId?: string | undefined
  readonly transactionHash?: string | undefined
  readonly reason?: string | undefined
  readonly fee?: bigint | undefined
  readonly signature?: Hex | undefined
}

/** As `advance_withdrawal`. False when the payout has ended or was submitted again meanwhile. */
async function move(
  database: Database,
  { id, attempts }: Pick<PayoutRow, 'id' | 'attempts'>,
  state: string,
  news: PayoutNews = {},
): Promise<boolean> {
  const moved = await database.query(
    `update payouts set state = $2, gateway_id = coalesce($3, gateway_id), tx_hash = coalesce(decode($4, 'hex'), tx_hash), reason = $5,
            fee = $6, signature = coalesce(decode($7, 'hex'), signature), changed_at = now(),
            attempts = attempts + case when $2 = 'sent' and $3::text is null then 1 else 0 end
      where id = $1 and state in ${openWithdrawalStates} and (attempts = $8 or $3::text is not null) returning id`,
    [
      id,
      state,
      news.gatewayId ?? null,
      news.transactionHash?.slice(2) ?? null,
      news.reason ?? null,
      news.fee ?? null,
      news.signature?.slice(2) ?? null,
      attempts,
    ],
  )
  return moved.length > 0
}

type PayoutRow = {
  readonly id: string
  readonly amount: bigint
  readonly fee_max: bigint
  readonly recipient: string
  readonly state: string
  readonly attempts: number
  readonly gateway_id: string | null
  readonly signature: string | null
}

export class PayoutTooLargeError extends OperatorError {
  constructor(amount: Usdc, payable: Usdc) {
    super(
      `${format(amount)} USDC cannot be paid out: ${format(payable)} USDC can. The rest is owed to accounts or may be refunded to retries.`,
    )
  }
}

/** Above the signer's limit: it would never be signed. */
class PayoutAboveMostError extends OperatorError {
  constructor(amount: Usdc) {
    super(
      `${format(amount)} USDC cannot be paid out in one go: the maximum is ${format(fromAtomic(payOutMax))} USDC. Pay it out in parts.`,
    )
  }
}

class PayoutBelowFeeError extends OperatorError {
  constructor(amount: Usdc, feeMax: Usdc) {
    super(
      `${format(amount)} USDC cannot be paid out: the gateway fee can be up to ${format(feeMax)} USDC. Pay out more.`,
    )
  }
}
