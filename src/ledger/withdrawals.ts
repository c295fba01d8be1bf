import type { AccountRef } from '../db/account-ref.ts'
import { readClock } from '../db/clock.ts'
import type { Connection, Database } from '../db/database.ts'
import { wakeHolder } from '../db/exclusive.ts'
import { rowsOf } from '../db/rows.ts'
import { ServiceError } from '../errors.ts'
import { moneyFields } from '../money/money-fields.ts'
import { format, fromAtomic, type Usdc } from '../money/usdc.ts'
import { LedgerFrozenError } from './refusals.ts'
import { openPaymentStates, openTransferStates, withdrawalKinds } from './states.ts'
import { pageOfAccount, pageValues, type TransferPage } from './transfer-page.ts'
import { findTransfer, type Transfer, transferColumns } from './transfers.ts'

export type NewWithdrawal = {
  readonly partition: number
  readonly accountId: string
  /** Chosen by the caller; makes the withdrawal idempotent. */
  readonly id: string
  readonly amount: Usdc
  readonly recipient: string
  /** A smaller amount is paid only when it is the whole remainder, and once in 24 hours. */
  readonly min: Usdc
}

/** Per account. `request_withdrawal` has the same number. */
const openWithdrawalsMax = 3
const openRetryMs = 30_000

/** Sets the gateway's maximum fee for new withdrawals. Existing withdrawals keep theirs. */
export async function setWithdrawalFeeMax(database: Database, feeMax: bigint): Promise<void> {
  // Read first, as in setUnsettledCap.
  const different = await database.query('select from ledger_state where withdrawal_fee_max <> $1', [feeMax])
  if (different.length > 0) await database.query('update ledger_state set withdrawal_fee_max = $1', [feeMax])
}

export async function readWithdrawalFeeMax(connection: Connection): Promise<Usdc> {
  const [row] = await connection.query<{ fee: bigint }>('select withdrawal_fee_max as fee from ledger_state')
  return fromAtomic(row!.fee)
}

/**
 * Takes the amount out of the spendable balance. Calling it again with the same id returns the stored withdrawal. `alongside` writes
 * into the same transaction, once for each withdrawal: the account's log.
 */
export async function requestWithdrawal(
  database: Database,
  request: NewWithdrawal,
  alongside?: (connection: Connection) => Promise<void>,
): Promise<Transfer> {
  const { partition, accountId, id, amount, recipient, min } = request
  await database.transaction(async (connection) => {
    const [row] = await connection.query<WithdrawalDecision>(
      'select decision, withdrawable, available_at as "availableAt" from request_withdrawal($1, $2, $3, $4, $5, $6)',
      [partition, accountId, id, amount, recipient, min],
    )
    refuse(row!, request)
    if (row!.decision === 'requested') await alongside?.(connection)
    await wakeHolder(connection, 'settlement')
  })
  const withdrawal = await findWithdrawal(database, partition, accountId, id)
  if (withdrawal?.amount === amount && withdrawal.counterparty === recipient) return withdrawal
  throw new WithdrawalMismatchError(id)
}

type WithdrawalDecision = {
  readonly decision: string
  readonly withdrawable: bigint
  readonly availableAt: Date | null
}

function refuse({ decision, withdrawable, availableAt }: WithdrawalDecision, { amount, min }: NewWithdrawal): void {
  if (decision === 'ledger_frozen') throw new LedgerFrozenError()
  if (decision === 'insufficient_balance') throw new WithdrawalTooLargeError(amount, fromAtomic(withdrawable))
  if (decision === 'below_fee') throw new WithdrawalBelowFeeError(amount, fromAtomic(withdrawable))
  if (decision === 'below_min') throw new WithdrawalBelowMinError(amount, min, fromAtomic(withdrawable))
  if (decision === 'small_too_soon') throw new SmallWithdrawalTooSoonError(amount, min, availableAt!)
  if (decision === 'too_many_open') throw new TooManyWithdrawalsError()
  if (decision === 'wallet_account') throw new WalletAccountError()
}

/** A withdrawal or refund of the account. */
export async function findWithdrawal(
  database: Database,
  partition: number,
  accountId: string,
  id: string,
): Promise<Transfer | undefined> {
  const found = await findTransfer(database, { partition, id })
  return found?.accountId === accountId ? found : undefined
}

/** Withdrawals and refunds of the account, newest first. */
export function listWithdrawals(
  database: Database,
  { partition, accountId }: AccountRef,
  page: TransferPage,
): Promise<readonly Transfer[]> {
  return rowsOf<Transfer>(
    database.query(
      `select ${transferColumns} from (select * from transfers where kind in ${withdrawalKinds}) t ${pageOfAccount}`,
      [partition, accountId, ...pageValues(page)],
    ),
  )
}

/** The median time from request to payment over the latest withdrawals of all accounts; undefined before the first payment. */
export type WithdrawalTime = { readonly medianMs: number | undefined; readonly count: number }

const timedMax = 20

export async function readWithdrawalTime(database: Database): Promise<WithdrawalTime> {
  const [row] = await database.query<{ median_ms: number | null; count: number }>(
    `select round(percentile_cont(0.5) within group (order by extract(epoch from changed_at - created_at)) * 1000)::float8 as median_ms,
            count(*)::int as count
       from (select changed_at, created_at from transfers where state = 'confirmed' and kind = 'withdrawal'
              order by changed_at desc limit ${timedMax}) as last_ones`,
  )
  return { medianMs: row!.median_ms ?? undefined, count: row!.count }
}

/**
 * Whether all earlier charges are paid on chain: then the account's gateway balance matches the ledger. Stored with the withdrawal
 * the first time.
 */
export async function isSettled(database: Database, { partition, accountId, id }: Transfer): Promise<boolean> {
  const rows = await database.query(
    `update transfers t set ready_at = coalesce(t.ready_at, $4)
       from accounts a
      where t.partition = $1 and t.id = $2 and a.partition = $1 and a.id = $3
        and (a.covered_entry >= t.after_entry or a.charged - a.given_back = a.covered)
        and not exists (select from payments p where p.partition = $1 and p.account_id = $3 and p.state in ${openPaymentStates}
                           and p.first_entry <= t.after_entry)
     returning true`,
    [partition, id, accountId, await readClock(database)],
  )
  return rows.length > 0
}

/** Withdrawals, refunds and payouts that may have been submitted and that the gateway has not acknowledged for this long. */
export async function countUnansweredWithdrawals(database: Database, seconds: number): Promise<number> {
  const [row] = await database.query<{ count: number }>(
    `select count(*)::int as count from transfers
      where state in ${openTransferStates} and state = 'sent' and created_at < clock_timestamp() - $1 * interval '1 second'`,
    [seconds],
  )
  return row!.count
}

/** Its money is at the seller, which pays it back by refunds. */
export class WalletAccountError extends ServiceError {
  constructor() {
    super(
      'invalid_value',
      'This account pays per request over x402: it has no deposit address and no owner address. Its credit goes back to its wallet: POST /api/refunds ("Refund" on the Funds page) or POST /x402/v1/refund.',
    )
  }
}

export class WithdrawalTooLargeError extends ServiceError {
  constructor(amount: Usdc, withdrawable: Usdc) {
    super(
      'insufficient_balance',
      `${format(amount)} USDC cannot be withdrawn: ${format(withdrawable)} USDC can. Money held by open requests becomes available when they end.`,
      { extra: moneyFields({ required: amount, available: withdrawable }) },
    )
  }
}

/** The fee could consume the whole amount. */
export class WithdrawalBelowFeeError extends ServiceError {
  constructor(amount: Usdc, feeMax: Usdc) {
    super(
      'invalid_value',
      `${format(amount)} USDC cannot be withdrawn: the gateway fee can be up to ${format(feeMax)} USDC. Withdraw more than that.`,
      { param: 'amount' },
    )
  }
}

type PayOutVerb = 'withdrawn' | 'refunded'

export class WithdrawalBelowMinError extends ServiceError {
  constructor(amount: Usdc, min: Usdc, left: Usdc, verb: PayOutVerb = 'withdrawn') {
    super(
      'invalid_value',
      `${format(amount)} USDC cannot be ${verb}: the minimum is ${format(min)} USDC, or everything that is left (${format(left)} USDC).`,
      { param: 'amount' },
    )
  }
}

export class SmallWithdrawalTooSoonError extends ServiceError {
  constructor(amount: Usdc, min: Usdc, availableAt: Date, verb: PayOutVerb = 'withdrawn') {
    super(
      'invalid_value',
      `${format(amount)} USDC cannot be ${verb} yet: less than ${format(min)} USDC can be ${verb} once in 24 hours, next at ${availableAt.toISOString()}.`,
      { param: 'amount' },
    )
  }
}

export class TooManyWithdrawalsError extends ServiceError {
  constructor() {
    super(
      'rate_limited',
      `${openWithdrawalsMax} withdrawals of this account are open; the limit is ${openWithdrawalsMax}. Try again when one of them has been paid.`,
      { retryAfterMs: openRetryMs },
    )
  }
}

/** The id already belongs to a different withdrawal: an error of the caller. */
export class WithdrawalMismatchError extends ServiceError {
  constructor(id: string) {
    super(
      'idempotency_mismatch',
      `Withdrawal ${id} was requested before, with another amount or address. Use a new id for a new withdrawal.`,
    )
  }
}
