import { rowLiteral } from '../db/array-literal.ts'
import { isLongerAgo, readClock } from '../db/clock.ts'
import type { Connection, Database } from '../db/database.ts'
import { derivedId } from '../db/derived-id.ts'
import { rowsOf } from '../db/rows.ts'
import type { AcceptedPayment } from './hold-calls.ts'
import type { RequestId } from './request-id.ts'
import { openTransferStates } from './states.ts'
import { type Transfer, transferColumns } from './transfers.ts'
import type { X402Wallet } from './wallet-accounts.ts'

/** A payment that a wallet signed for one request. */
export type X402Payment = {
  readonly wallet: X402Wallet
  readonly nonce: Buffer
  readonly value: bigint
  /** Seconds since 1970. */
  readonly validAfter: number
  readonly validBefore: number
  /** 65 bytes. */
  readonly signature: Buffer
  readonly requestId: RequestId
}

export type PaymentClaim =
  /** Only this request may submit it, for a while. */
  | 'claimed'
  /** The same, but an earlier request may have submitted it: ask the gateway before anything else. */
  | 'reclaimed'
  /** Another request has just submitted it, and the outcome is not known yet. */
  | 'taken'
  /** It is credited, or was declined. */
  | 'used'

/** Longer than the gateway's timeout: a request that still has its claim after this is dead. */
const claimSeconds = 30

/** Claims a payment before it is submitted: after any crash, whatever the gateway accepted is found again. */
export async function claimPayment(database: Database, payment: X402Payment): Promise<PaymentClaim> {
  const { wallet, nonce, value, validAfter, validBefore, signature, requestId } = payment
  const now = await readClock(database)
  const deadBefore = new Date(now.getTime() - claimSeconds * 1_000)
  const [claimed] = await database.query<{ is_again: boolean }>(
    `insert into transfers as t (partition, id, kind, state, counterparty, nonce, account_id, amount, valid_after, valid_before, signature,
                                 request_id, created_at, sent_at, changed_at)
     values ($1, $2, 'x402', 'sent', $3, $4, $5, $6, $7, $8, $9, $10, $11, $11, $11)
     on conflict (partition, id) do update set request_id = excluded.request_id, sent_at = excluded.sent_at
       where t.state = 'sent' and t.amount = excluded.amount and t.sent_at < $12
     returning t.created_at < t.sent_at as is_again`,
    [
      wallet.partition,
      idOf(payment),
      wallet.address,
      nonce,
      wallet.accountId,
      value,
      validAfter,
      validBefore,
      signature,
      requestId,
      now,
      deadBefore,
    ],
  )
  if (claimed !== undefined) return claimed.is_again ? 'reclaimed' : 'claimed'
  const [row] = await database.query<{ is_open: boolean }>(
    `select state = 'sent' as is_open from transfers where partition = $1 and id = $2`,
    [wallet.partition, idOf(payment)],
  )
  // The row has just been deleted, because the gateway refused it: the claim can be retried.
  return row === undefined || row.is_open ? 'taken' : 'used'
}

/** Whether it was credited or declined before. For an early answer; `claimPayment` decides. */
export async function isPaymentUsed(database: Database, wallet: X402Wallet, nonce: string): Promise<boolean> {
  const [row] = await database.queryPrepared(
    'find_used_x402_payment',
    `select from transfers where partition = $1 and id = $2 and state <> 'sent'`,
    [wallet.partition, idOf({ wallet, nonce: Buffer.from(nonce.slice(2), 'hex') })],
  )
  return row !== undefined
}

/** Uses a claimed payment up that was never submitted: the wallet's credit covers its request. */
export function declinePayment(database: Database, payment: X402Payment): Promise<void> {
  return setUnsubmitted(database, payment, 'failed', 'not_needed')
}

/** Undoes `declinePayment` before the payment is submitted after all: another request has spent the credit. */
export function reopenPayment(database: Database, payment: X402Payment): Promise<void> {
  return setUnsubmitted(database, payment, 'sent', null)
}

async function setUnsubmitted(
  database: Database,
  payment: X402Payment,
  state: 'sent' | 'failed',
  reason: string | null,
): Promise<void> {
  await database.query(
    `update transfers set state = $4, reason = $5 where partition = $1 and id = $2 and request_id = $3 and gateway_id is null`,
    [payment.wallet.partition, idOf(payment), payment.requestId, state, reason],
  )
}

/** Deletes the row of a payment whose only attempt the gateway has refused. */
export async function deleteRefusedPayment(database: Database, payment: X402Payment): Promise<void> {
  await database.query(
    `delete from transfers where partition = $1 and id = $2 and request_id = $3 and state = 'sent'`,
    [payment.wallet.partition, idOf(payment), payment.requestId],
  )
}

export function acceptedPayment(
  { wallet, nonce }: Pick<X402Payment, 'wallet' | 'nonce'>,
  gatewayId: string,
): AcceptedPayment {
  return { payer: wallet.address, nonce, depositId: idOf({ wallet, nonce }), gatewayId }
}

/** Of the transfer, and of its deposit: one payment is one row, however often it is presented. */
export function idOf({ wallet, nonce }: Pick<X402Payment, 'wallet' | 'nonce'>): string {
  return derivedId(`penny x402 payment ${wallet.address} ${nonce.toString('hex')}`)
}

/** Credits an accepted payment whose request is gone. False when it was credited before. */
export async function creditPayment(
  connection: Connection,
  wallet: X402Wallet,
  payment: AcceptedPayment,
): Promise<boolean> {
  const [row] = await connection.query<{ credited: boolean }>('select credit_x402_payment($1, $2) as credited', [
    wallet.partition,
    rowLiteral([payment.payer, payment.nonce, wallet.accountId, wallet.keyId, payment.depositId, payment.gatewayId]),
  ])
  return row!.credited
}

/** Payments whose request has ended without an outcome. Older ones are checked less often, down to once an hour. */
export function findUndecidedPayments(database: Database, rowsMax: number): Promise<readonly Transfer[]> {
  return rowsOf<Transfer>(
    database.queryPrepared(
      'find_undecided_x402_payments',
      `select ${transferColumns} from transfers
        where state in ${openTransferStates} and state = 'sent' and kind = 'x402'
          and ${isLongerAgo('sent_at', `interval '${claimSeconds} seconds'`)}
          and ${isLongerAgo('changed_at', "least((changed_at - created_at) / 4, interval '1 hour')")}
        order by changed_at limit $1`,
      [rowsMax],
    ),
  )
}

/** Deletes a payment whose authorization has expired and that the gateway does not have: it can never be paid. */
export async function deleteUndecided(database: Database, { partition, id }: Transfer): Promise<void> {
  await database.query("delete from transfers where partition = $1 and id = $2 and kind = 'x402' and state = 'sent'", [
    partition,
    id,
  ])
}
