import { plainArray, rowArray, rowLiteral } from '../db/array-literal.ts'
import { isLongerAgo, readClock } from '../db/clock.ts'
import { type Connection, type Database, isLockTimeout } from '../db/database.ts'
import { derivedId } from '../db/derived-id.ts'
import type { AcceptedPayment } from './hold-calls.ts'
import type { ConfirmDue, ToConfirm } from './payments.ts'
import type { RequestId } from './request-id.ts'
import { openX402States, type X402PaymentState } from './states.ts'
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
    `insert into x402_payments as p (partition, payer, nonce, account_id, value, valid_after, valid_before, signature, state, request_id,
                                     created_at, claimed_at, changed_at)
     values ($1, $2, $3, $4, $5, $6, $7, $8, 'submitted', $9, $10, $10, $10)
     on conflict (partition, payer, nonce) do update set request_id = excluded.request_id, claimed_at = excluded.claimed_at
       where p.credited_at is null and p.state = 'submitted' and p.value = excluded.value
         and p.claimed_at < $11
     returning p.created_at < p.claimed_at as is_again`,
    [
      wallet.partition,
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
    `select credited_at is null and state = 'submitted' as is_open from x402_payments where partition = $1 and payer = $2 and nonce = $3`,
    [wallet.partition, wallet.address, nonce],
  )
  // The row has just been deleted, because the gateway refused it: the claim can be retried.
  return row === undefined || row.is_open ? 'taken' : 'used'
}

/** Whether it was credited or declined before. For an early answer; `claimPayment` decides. */
export async function isPaymentUsed(database: Database, wallet: X402Wallet, nonce: string): Promise<boolean> {
  const [row] = await database.queryPrepared(
    'find_used_x402_payment',
    `select from x402_payments
      where partition = $1 and payer = $2 and nonce = $3 and (credited_at is not null or state = 'failed')`,
    [wallet.partition, wallet.address, Buffer.from(nonce.slice(2), 'hex')],
  )
  return row !== undefined
}

/** Uses a claimed payment up that was never submitted: the wallet's credit covers its request. */
export function declinePayment(database: Database, payment: X402Payment): Promise<void> {
  return setUnsubmitted(database, payment, 'failed', 'not_needed')
}

/** Undoes `declinePayment` before the payment is submitted after all: another request has spent the credit. */
export function reopenPayment(database: Database, payment: X402Payment): Promise<void> {
  return setUnsubmitted(database, payment, 'submitted', null)
}

async function setUnsubmitted(
  database: Database,
  { wallet, nonce, requestId }: X402Payment,
  state: X402PaymentState,
  reason: string | null,
): Promise<void> {
  await database.query(
    `update x402_payments set state = $5, reason = $6
      where partition = $1 and payer = $2 and nonce = $3 and request_id = $4 and credited_at is null`,
    [wallet.partition, wallet.address, nonce, requestId, state, reason],
  )
}

/** Deletes the row of a payment whose only attempt the gateway has refused. */
export async function deleteRefusedPayment(
  database: Database,
  { wallet, nonce, requestId }: X402Payment,
): Promise<void> {
  await database.query(
    `delete from x402_payments
      where partition = $1 and payer = $2 and nonce = $3 and request_id = $4 and state = 'submitted' and credited_at is null`,
    [wallet.partition, wallet.address, nonce, requestId],
  )
}

export function acceptedPayment(
  { wallet, nonce }: Pick<X402Payment, 'wallet' | 'nonce'>,
  gatewayId: string,
): AcceptedPayment {
  return { payer: wallet.address, nonce, depositId: depositIdOf(wallet.address, nonce), gatewayId }
}

function depositIdOf(payer: string, nonce: Buffer): string {
  return derivedId(`penny x402 payment ${payer} ${nonce.toString('hex')}`)
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

/** A payment that is not final. */
export type OpenX402Payment = {
  readonly partition: number
  readonly payer: string
  readonly nonce: Buffer
  readonly accountId: string
  readonly value: bigint
  readonly state: X402PaymentState
  readonly gatewayId: string | undefined
  readonly validAfter: number
  readonly validBefore: number
  readonly signature: Buffer
  readonly isExpired: boolean
}

/** Payments whose request has ended without an outcome. Older ones are checked less often, down to once an hour. */
export async function findUndecidedPayments(database: Database, rowsMax: number): Promise<readonly OpenX402Payment[]> {
  const rows = await database.queryPrepared<OpenRow>(
    'find_undecided_x402_payments',
    `select ${columns} from x402_payments p
      where p.state in ${openX402States} and p.state = 'submitted' and ${isLongerAgo('p.claimed_at', `interval '${claimSeconds} seconds'`)}
        and ${isLongerAgo('p.changed_at', "least((p.changed_at - p.created_at) / 4, interval '1 hour')")}
      order by p.changed_at limit $1`,
    [rowsMax],
  )
  return rows.map(readOpen)
}

/** The gateway did not answer, or does not have it yet. */
export async function touchUndecided(database: Database, { partition, payer, nonce }: OpenX402Payment): Promise<void> {
  await database.query(
    `update x402_payments set changed_at = now() where partition = $1 and payer = $2 and nonce = $3 and state = 'submitted'`,
    [partition, payer, nonce],
  )
}

/** Deletes a payment whose authorization has expired and that the gateway does not have: it can never be paid. */
export async function deleteUndecided(database: Database, { partition, payer, nonce }: OpenX402Payment): Promise<void> {
  await database.query(
    `delete from x402_payments where partition = $1 and payer = $2 and nonce = $3 and state = 'submitted' and credited_at is null`,
    [partition, payer, nonce],
  )
}

/** Payments by the gateway's ids, those that are credited and not final. */
export async function findX402ByGatewayId(
  database: Database,
  gatewayIds: readonly string[],
): Promise<readonly OpenX402Payment[]> {
  const rows = await database.queryPrepared<OpenRow>(
    'find_x402_by_gateway_id',
    `select ${columns} from x402_payments p where p.gateway_id = any ($1) and p.state in ('received', 'batched')`,
    [gatewayIds],
  )
  return rows.map(readOpen)
}

/** The gateway's ids of payments without news for `untouchedMs`, longest first. */
export async function findX402ToConfirm(
  database: Database,
  { untouchedMs, overdueMs, rowsMax }: ConfirmDue,
): Promise<readonly ToConfirm[]> {
  return database.queryPrepared(
    'find_x402_to_confirm',
    `select p.gateway_id as id, ${isLongerAgo('p.changed_at', "$2 * interval '1 millisecond'")} as "isOverdue"
       from x402_payments p
      where p.state in ${openX402States} and p.state in ('received', 'batched') and p.gateway_id is not null
        and ${isLongerAgo('p.changed_at', "greatest($1 * interval '1 millisecond', least((p.changed_at - p.created_at) / 4, interval '60 seconds'))")}
      order by p.changed_at limit $3`,
    [untouchedMs, overdueMs, rowsMax],
  )
}

/** The gateway's report about a payment. */
export type X402News = {
  readonly payment: OpenX402Payment
  readonly state: X402PaymentState
  readonly reason: string | undefined
  readonly gatewayId: string
  readonly batch: bigint | undefined
  readonly transactionHash: string | undefined
}

/** Stores news of credited payments. Accounts that stay locked are skipped: ask again. Returns how many changed. */
export async function advanceX402Payments(database: Database, news: readonly X402News[]): Promise<number> {
  let changed = 0
  for (const [partition, group] of Map.groupBy(news, ({ payment }) => payment.partition)) {
    for (const some of [...Map.groupBy(group, ({ payment }) => payment.accountId).values()]) {
      try {
        const [row] = await database.queryPrepared<{ changed: number }>(
          'advance_x402_payments',
          'select advance_x402_payments($1, $2, $3) as changed',
          [
            partition,
            plainArray([some[0]!.payment.accountId]),
            rowArray(
              some.map(({ payment: { accountId, payer, nonce }, state, reason, gatewayId, batch, transactionHash }) => [
                accountId,
                payer,
                nonce,
                depositIdOf(payer, nonce),
                state,
                reason,
                gatewayId,
                batch,
                transactionHash === undefined ? undefined : Buffer.from(transactionHash.slice(2), 'hex'),
              ]),
            ),
          ],
        )
        changed += row!.changed
      } catch (error) {
        if (!isLockTimeout(error)) throw error
      }
    }
  }
  return changed
}

/** Marks payments as checked without news. */
export async function touchX402Payments(database: Database, payments: readonly OpenX402Payment[]): Promise<void> {
  for (const { partition, payer, nonce, state } of payments) {
    await database.query(
      'update x402_payments set changed_at = now() where partition = $1 and payer = $2 and nonce = $3 and state = $4',
      [partition, payer, nonce, state],
    )
  }
}

const columns = `p.partition, p.payer, p.nonce, p.account_id, p.value, p.state, p.gateway_id, p.valid_after, p.valid_before,
  p.signature, p.valid_before < extract(epoch from clock_timestamp()) as is_expired`

type OpenRow = {
  readonly partition: number
  readonly payer: string
  readonly nonce: Buffer
  readonly account_id: string
  readonly value: bigint
  readonly state: X402PaymentState
  readonly gateway_id: string | null
  readonly valid_after: bigint
  readonly valid_before: bigint
  readonly signature: Buffer
  readonly is_expired: boolean
}

function readOpen(row: OpenRow): OpenX402Payment {
  return {
    partition: row.partition,
    payer: row.payer,
    nonce: row.nonce,
    accountId: row.account_id,
    value: row.value,
    state: row.state,
    gatewayId: row.gateway_id ?? undefined,
    validAfter: Number(row.valid_after),
    validBefore: Number(row.valid_before),
    signature: row.signature,
    isExpired: row.is_expired,
  }
}
