import type { AccountRef } from '../db/account-ref.ts'
import { isLongerAgo, readClock } from '../db/clock.ts'
import type { Connection, Database } from '../db/database.ts'
import { ServiceError } from '../errors.ts'
import { moneyFields } from '../money/money-fields.ts'
import { format, fromAtomic, type Usdc } from '../money/usdc.ts'
import { LedgerFrozenError } from './refusals.ts'
import { openPaymentStates, openWithdrawalStates, type WithdrawalState } from './states.ts'
import { pageOfAccount, pageValues, type TransferPage } from './transfer-page.ts'

export type Withdrawal = {
  readonly partition: number
  readonly id: string
  readonly accountId: string
  /** The total that leaves the account. The recipient gets `amount - feeMax`. */
  readonly amount: Usdc
  /** The gateway's maximum fee, reserved and signed with the intent. */
  readonly feeMax: Usdc
  /** The gateway's fee; the rest of `feeMax` returned to the balance. Undefined until the withdrawal is paid. */
  readonly fee: Usdc | undefined
  /** All charges up to this entry are paid on chain before the intent is submitted. */
  readonly afterEntry: bigint
  readonly recipient: string
  /** Unused credit of a wallet account, which the seller pays back. */
  readonly isRefund: boolean
  readonly state: WithdrawalState
  readonly reason: string | undefined
  /** How often the intent was submitted. */
  readonly attempts: number
  readonly gatewayId: string | undefined
  /** The signature of the intent at the gateway; set before it may have been submitted. */
  readonly signature: string | undefined
  readonly transactionHash: string | undefined
  readonly createdAt: Date
  readonly changedAt: Date
  /** When all earlier charges were paid on chain. */
  readonly settledAt: Date | undefined
  /** When the intent was first submitted. */
  readonly sentAt: Date | undefined
}

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
): Promise<Withdrawal> {
  const { partition, accountId, id, amount, recipient, min } = request
  await database.transaction(async (connection) => {
    const [row] = await connection.query<WithdrawalDecision>(
      'select decision, withdrawable, available_at as "availableAt" from request_withdrawal($1, $2, $3, $4, $5, $6)',
      [partition, accountId, id, amount, recipient, min],
    )
    refuse(row!, request)
    if (row!.decision === 'requested') await alongside?.(connection)
  })
  const withdrawal = await findWithdrawal(database, partition, accountId, id)
  if (withdrawal?.amount === amount && withdrawal.recipient === recipient) return withdrawal
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

export async function findWithdrawal(
  database: Database,
  partition: number,
  accountId: string,
  id: string,
): Promise<Withdrawal | undefined> {
  const [row] = await database.query<WithdrawalRow>(
    `select ${columns} from withdrawals where partition = $1 and account_id = $2 and id = $3`,
    [partition, accountId, id],
  )
  return row === undefined ? undefined : readWithdrawal(row)
}

/** Newest first. */
export async function listWithdrawals(
  database: Database,
  { partition, accountId }: AccountRef,
  page: TransferPage,
): Promise<readonly Withdrawal[]> {
  const rows = await database.query<WithdrawalRow>(`select ${columns} from withdrawals ${pageOfAccount}`, [
    partition,
    accountId,
    ...pageValues(page),
  ])
  return rows.map(readWithdrawal)
}

/** The median time from request to payment over the latest withdrawals of all accounts; undefined before the first payment. */
export type WithdrawalTime = { readonly medianMs: number | undefined; readonly count: number }

const timedMax = 20

export async function readWithdrawalTime(database: Database): Promise<WithdrawalTime> {
  const [row] = await database.query<{ median_ms: number | null; count: number }>(
    `select round(percentile_cont(0.5) within group (order by extract(epoch from changed_at - created_at)) * 1000)::float8 as median_ms,
            count(*)::int as count
       from (select changed_at, created_at from withdrawals where state = 'confirmed' and refund is null
              order by changed_at desc limit ${timedMax}) as last_ones`,
  )
  return { medianMs: row!.median_ms ?? undefined, count: row!.count }
}

/** SQL: the older a withdrawal, refund or payout is, the less often it is checked, down to twice a minute. */
export const pauseOfWithdrawal = `least((changed_at - created_at) / 8, interval '30 seconds')`

/** Withdrawals that are due for a check. */
export async function findOpenWithdrawals(database: Database, rowsMax: number): Promise<readonly Withdrawal[]> {
  const rows = await database.queryPrepared<WithdrawalRow>(
    'find_open_withdrawals',
    `select ${columns} from withdrawals where state in ${openWithdrawalStates} and refund is null
        and ${isLongerAgo('changed_at', pauseOfWithdrawal)}
      order by changed_at limit $1`,
    [rowsMax],
  )
  return rows.map(readWithdrawal)
}

/** Marks a withdrawal as checked without progress, so that others are checked first. */
export async function touchWithdrawal(
  database: Database,
  { partition, id, state }: Pick<Withdrawal, 'partition' | 'id' | 'state'>,
): Promise<void> {
  await database.query('update withdrawals set changed_at = now() where partition = $1 and id = $2 and state = $3', [
    partition,
    id,
    state,
  ])
}

export type WithdrawalStep = {
  readonly state: WithdrawalState
  readonly gatewayId?: string | undefined
  readonly transactionHash?: string | undefined
  readonly reason?: string | undefined
  /** With `confirmed`: the gateway's actual fee. Defaults to the maximum. */
  readonly fee?: bigint | undefined
}

/**
 * Whether all earlier charges are paid on chain: then the account's gateway balance matches the ledger. Stored with the withdrawal
 * the first time.
 */
export async function isSettled(database: Database, { partition, accountId, id }: Withdrawal): Promise<boolean> {
  const rows = await database.query(
    `update withdrawals w set settled_at = coalesce(w.settled_at, $4)
       from accounts a
      where w.partition = $1 and w.id = $2 and a.partition = $1 and a.id = $3
        and (a.covered_entry >= w.after_entry or a.charged - a.given_back = a.covered)
        and not exists (select from payments p where p.partition = $1 and p.account_id = $3 and p.state in ${openPaymentStates}
                           and p.first_entry <= w.after_entry)
     returning true`,
    [partition, id, accountId, await readClock(database)],
  )
  return rows.length > 0
}

/** Stores the signature before the intent is submitted: a resend is then identical, even if the signer would no longer sign it. */
export async function keepWithdrawalSignature(
  database: Database,
  { partition, id }: Pick<Withdrawal, 'partition' | 'id'>,
  signature: string,
): Promise<void> {
  await database.query(`update withdrawals set signature = decode($3, 'hex') where partition = $1 and id = $2`, [
    partition,
    id,
    signature.slice(2),
  ])
}

/** Withdrawals that may have been submitted and that the gateway has not acknowledged for this long. */
export async function countUnansweredWithdrawals(database: Database, seconds: number): Promise<number> {
  const [row] = await database.query<{ count: number }>(
    `select count(*)::int as count from withdrawals
      where state = 'sent' and gateway_id is null and created_at < clock_timestamp() - $1 * interval '1 second'`,
    [seconds],
  )
  return row!.count
}

/**
 * Advances a withdrawal's state. A failure returns its money; a payment returns the unused fee. `sent` without the gateway's id begins
 * an attempt. False when it has ended or was submitted again meanwhile: then the caller's decision is obsolete.
 */
export async function advanceWithdrawal(
  database: Database,
  { partition, accountId, id, attempts }: Pick<Withdrawal, 'partition' | 'accountId' | 'id' | 'attempts'>,
  step: WithdrawalStep,
): Promise<boolean> {
  const { state, gatewayId, transactionHash, reason, fee } = step
  const [row] = await database.query<{ moved: boolean }>(
    `select advance_withdrawal($1, $2, $3, $4, $5, $6, decode($7, 'hex'), $8, $9) as moved`,
    [
      partition,
      accountId,
      id,
      attempts,
      state,
      gatewayId ?? null,
      transactionHash?.slice(2) ?? null,
      reason ?? null,
      fee ?? null,
    ],
  )
  return row!.moved
}

const columns = `partition, id, account_id, amount, fee_max, fee, after_entry, recipient, state, reason, attempts, gateway_id,
  encode(signature, 'hex') as signature, encode(tx_hash, 'hex') as tx_hash, created_at, changed_at,
  settled_at, sent_at, refund is not null as is_refund`

type WithdrawalRow = {
  readonly partition: number
  readonly id: string
  readonly account_id: string
  readonly amount: bigint
  readonly fee_max: bigint
  readonly fee: bigint | null
  readonly after_entry: bigint
  readonly recipient: string
  readonly state: WithdrawalState
  readonly reason: string | null
  readonly attempts: number
  readonly gateway_id: string | null
  readonly signature: string | null
  readonly tx_hash: string | null
  readonly created_at: Date
  readonly changed_at: Date
  readonly settled_at: Date | null
  readonly sent_at: Date | null
  readonly is_refund: boolean
}

function readWithdrawal(row: WithdrawalRow): Withdrawal {
  return {
    partition: row.partition,
    id: row.id,
    accountId: row.account_id,
    amount: fromAtomic(row.amount),
    feeMax: fromAtomic(row.fee_max),
    fee: row.fee === null ? undefined : fromAtomic(row.fee),
    afterEntry: row.after_entry,
    recipient: row.recipient,
    isRefund: row.is_refund,
    state: row.state,
    reason: row.reason ?? undefined,
    attempts: row.attempts,
    gatewayId: row.gateway_id ?? undefined,
    signature: row.signature === null ? undefined : `0x${row.signature}`,
    transactionHash: row.tx_hash === null ? undefined : `0x${row.tx_hash}`,
    createdAt: row.created_at,
    changedAt: row.changed_at,
    settledAt: row.settled_at ?? undefined,
    sentAt: row.sent_at ?? undefined,
  }
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
