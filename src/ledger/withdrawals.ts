import type { AccountRef } from '../account-ref.ts'
import type { Connection, Database } from '../db/database.ts'
import { ServiceError } from '../errors.ts'
import { moneyFields } from '../money/money-fields.ts'
import { format, fromAtomic, type Usdc } from '../money/usdc.ts'
import { openWithdrawalStates } from './open-states.ts'
import { LedgerFrozenError } from './refusals.ts'
import { pageOfAccount, pageValues, type TransferPage } from './transfer-page.ts'

export type WithdrawalState = 'requested' | 'returning' | 'returned' | 'sent' | 'confirmed' | 'failed'

export type Withdrawal = {
  readonly partition: number
  readonly id: string
  readonly accountId: string
  /** All that leaves the account. The recipient is paid `amount - feeMax`. */
  readonly amount: Usdc
  /** The most that the gateway may keep of it, set aside and signed with the order. */
  readonly feeMax: Usdc
  /** What it kept; the rest of `feeMax` is back in the balance. Undefined until the withdrawal is paid. */
  readonly fee: Usdc | undefined
  /** The part that is credit: the seller pays it back into the gateway first. */
  readonly creditBack: Usdc
  /** Of the payment back. */
  readonly nonce: bigint | undefined
  readonly recipient: string
  readonly state: WithdrawalState
  readonly reason: string | undefined
  readonly returnId: string | undefined
  readonly railId: string | undefined
  /** Of the order to the gateway, from when it may have been handed in. */
  readonly signature: string | undefined
  readonly transactionHash: string | undefined
  readonly createdAt: Date
  readonly changedAt: Date
  /** When the credit was back in the gateway. */
  readonly returnedAt: Date | undefined
  /** When the order was first handed in. */
  readonly sentAt: Date | undefined
}

export type WithdrawalOrder = {
  readonly partition: number
  readonly accountId: string
  /** The caller's: the same order again is the same withdrawal. */
  readonly id: string
  readonly amount: Usdc
  readonly recipient: string
  /** Less than this is paid only when it is everything that is left, and once in 24 hours. */
  readonly min: Usdc
}

/** Of one account. `request_withdrawal` has the same number. */
const openWithdrawalsMax = 3
const openRetryMs = 30_000

/** Writes down what the gateway may keep of a withdrawal from now on. Orders that were made before keep theirs. */
export async function setWithdrawalFeeMax(database: Database, feeMax: bigint): Promise<void> {
  await database.query('update ledger_state set withdrawal_fee_max = $1 where withdrawal_fee_max <> $1', [feeMax])
}

export async function readWithdrawalFeeMax(connection: Connection): Promise<Usdc> {
  const [row] = await connection.query<{ fee: bigint }>('select withdrawal_fee_max as fee from ledger_state')
  return fromAtomic(row!.fee)
}

/** Takes the amount out of what can be spent. Asking again with the same id gives the stored withdrawal. */
export async function requestWithdrawal(database: Database, order: WithdrawalOrder): Promise<Withdrawal> {
  const { partition, accountId, id, amount, recipient, min } = order
  const [row] = await database.query<WithdrawalDecision>(
    'select decision, withdrawable, available_at as "availableAt" from request_withdrawal($1, $2, $3, $4, $5, $6)',
    [partition, accountId, id, amount, recipient, min],
  )
  refuse(row!, order)
  const withdrawal = await findWithdrawal(database, partition, accountId, id)
  if (withdrawal?.amount === amount && withdrawal.recipient === recipient) return withdrawal
  throw new WithdrawalMismatchError(id)
}

type WithdrawalDecision = {
  readonly decision: string
  readonly withdrawable: bigint
  readonly availableAt: Date | null
}

function refuse({ decision, withdrawable, availableAt }: WithdrawalDecision, { amount, min }: WithdrawalOrder): void {
  if (decision === 'ledger_frozen') throw new LedgerFrozenError()
  if (decision === 'insufficient_balance') throw new WithdrawalTooLargeError(amount, fromAtomic(withdrawable))
  if (decision === 'below_fee') throw new WithdrawalBelowFeeError(amount, fromAtomic(withdrawable))
  if (decision === 'below_min') throw new WithdrawalBelowMinError(amount, min, fromAtomic(withdrawable))
  if (decision === 'small_too_soon') throw new SmallWithdrawalTooSoonError(amount, min, availableAt!)
  if (decision === 'too_many_open') throw new TooManyWithdrawalsError()
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

/** From the order to the payment, in the middle of the last ones of all accounts; undefined where none was paid yet. */
export type WithdrawalTime = { readonly medianMs: number | undefined; readonly count: number }

const timedMax = 20

export async function readWithdrawalTime(database: Database): Promise<WithdrawalTime> {
  const [row] = await database.query<{ median_ms: number | null; count: number }>(
    `select round(percentile_cont(0.5) within group (order by extract(epoch from changed_at - created_at)) * 1000)::float8 as median_ms,
            count(*)::int as count
       from (select changed_at, created_at from withdrawals where state = 'confirmed'
              order by changed_at desc limit ${timedMax}) as last_ones`,
  )
  return { medianMs: row!.median_ms ?? undefined, count: row!.count }
}

/** Those whose turn it is. The longer one takes the less often it is looked at, down to twice a minute. */
export async function findOpenWithdrawals(database: Database, rowsMax: number): Promise<readonly Withdrawal[]> {
  const rows = await database.query<WithdrawalRow>(
    `select ${columns} from withdrawals where state in ${openWithdrawalStates}
        and changed_at <= clock_timestamp() - least((changed_at - created_at) / 8, interval '30 seconds')
      order by changed_at limit $1`,
    [rowsMax],
  )
  return rows.map(readWithdrawal)
}

/** Looked at, and it could not move: the others are first now. */
export async function touchWithdrawal(
  database: Database,
  { partition, id, state }: Pick<Withdrawal, 'partition' | 'id' | 'state'>,
): Promise<void> {
  await database.query(
    'update withdrawals set changed_at = clock_timestamp() where partition = $1 and id = $2 and state = $3',
    [partition, id, state],
  )
}

export type WithdrawalStep = {
  readonly state: WithdrawalState
  readonly returnId?: string | undefined
  readonly railId?: string | undefined
  readonly transactionHash?: string | undefined
  readonly reason?: string | undefined
  /** With `confirmed`: what the gateway took. Left out, it counts as the most that it could take. */
  readonly fee?: bigint | undefined
}

/** Before the order is handed in: what is sent again later is the same, also when the signer would not sign it any more. */
export async function keepOrderSignature(
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

/** Withdrawals that may have been handed in and of which the gateway has said nothing for so long. */
export async function countUnansweredWithdrawals(database: Database, seconds: number): Promise<number> {
  const [row] = await database.query<{ count: number }>(
    `select count(*)::int as count from withdrawals
      where state = 'sent' and rail_id is null and created_at < clock_timestamp() - $1 * interval '1 second'`,
    [seconds],
  )
  return row!.count
}

/**
 * Moves a withdrawal on; when it fails its money comes back, and when it is paid what is left of the fee. False when it had ended
 * before, or was moved by somebody else from the state that is named: then what was decided of it no longer holds.
 */
export async function advanceWithdrawal(
  database: Database,
  { partition, accountId, id, state: from }: Pick<Withdrawal, 'partition' | 'accountId' | 'id' | 'state'>,
  step: WithdrawalStep,
): Promise<boolean> {
  const { state, returnId, railId, transactionHash, reason, fee } = step
  const [row] = await database.query<{ moved: boolean }>(
    `select advance_withdrawal($1, $2, $3, $4, $5, $6, decode($7, 'hex'), $8, $9, $10) as moved`,
    [
      partition,
      accountId,
      id,
      state,
      returnId ?? null,
      railId ?? null,
      transactionHash?.slice(2) ?? null,
      reason ?? null,
      fee ?? null,
      from,
    ],
  )
  return row!.moved
}

const columns = `partition, id, account_id, amount, fee_max, fee, credit_back, nonce, recipient, state, reason, return_id, rail_id,
  encode(signature, 'hex') as signature, encode(tx_hash, 'hex') as tx_hash, created_at, changed_at,
  returned_at, sent_at`

type WithdrawalRow = {
  readonly partition: number
  readonly id: string
  readonly account_id: string
  readonly amount: bigint
  readonly fee_max: bigint
  readonly fee: bigint | null
  readonly credit_back: bigint
  readonly nonce: bigint | null
  readonly recipient: string
  readonly state: WithdrawalState
  readonly reason: string | null
  readonly return_id: string | null
  readonly rail_id: string | null
  readonly signature: string | null
  readonly tx_hash: string | null
  readonly created_at: Date
  readonly changed_at: Date
  readonly returned_at: Date | null
  readonly sent_at: Date | null
}

function readWithdrawal(row: WithdrawalRow): Withdrawal {
  return {
    partition: row.partition,
    id: row.id,
    accountId: row.account_id,
    amount: fromAtomic(row.amount),
    feeMax: fromAtomic(row.fee_max),
    fee: row.fee === null ? undefined : fromAtomic(row.fee),
    creditBack: fromAtomic(row.credit_back),
    nonce: row.nonce ?? undefined,
    recipient: row.recipient,
    state: row.state,
    reason: row.reason ?? undefined,
    returnId: row.return_id ?? undefined,
    railId: row.rail_id ?? undefined,
    signature: row.signature === null ? undefined : `0x${row.signature}`,
    transactionHash: row.tx_hash === null ? undefined : `0x${row.tx_hash}`,
    createdAt: row.created_at,
    changedAt: row.changed_at,
    returnedAt: row.returned_at ?? undefined,
    sentAt: row.sent_at ?? undefined,
  }
}

export class WithdrawalTooLargeError extends ServiceError {
  readonly code = 'insufficient_balance'
  constructor(amount: Usdc, withdrawable: Usdc) {
    super(
      `${format(amount)} USDC cannot be withdrawn: ${format(withdrawable)} USDC can. What open requests hold is free when they end.`,
      { extra: moneyFields({ required: amount, available: withdrawable }) },
    )
  }
}

/** Nothing would be sure to arrive. */
export class WithdrawalBelowFeeError extends ServiceError {
  readonly code = 'invalid_value'
  constructor(amount: Usdc, feeMax: Usdc) {
    super(
      `${format(amount)} USDC cannot be withdrawn: the gateway keeps up to ${format(feeMax)} USDC of a withdrawal. Withdraw more than that.`,
      { param: 'amount' },
    )
  }
}

export class WithdrawalBelowMinError extends ServiceError {
  readonly code = 'invalid_value'
  constructor(amount: Usdc, min: Usdc, withdrawable: Usdc) {
    super(
      `${format(amount)} USDC cannot be withdrawn: the minimum is ${format(min)} USDC, or everything that is left (${format(withdrawable)} USDC).`,
      { param: 'amount' },
    )
  }
}

export class SmallWithdrawalTooSoonError extends ServiceError {
  readonly code = 'invalid_value'
  constructor(amount: Usdc, min: Usdc, availableAt: Date) {
    super(
      `${format(amount)} USDC cannot be withdrawn yet: less than ${format(min)} USDC can be withdrawn once in 24 hours, next at ${availableAt.toISOString()}.`,
      { param: 'amount' },
    )
  }
}

export class TooManyWithdrawalsError extends ServiceError {
  readonly code = 'rate_limited'
  constructor() {
    super(
      `${openWithdrawalsMax} withdrawals of this account are open; the limit is ${openWithdrawalsMax}. Try again when one of them has been paid.`,
      { retryAfterMs: openRetryMs },
    )
  }
}

/** The same id for another withdrawal: a mistake of the caller, and not one to guess about. */
export class WithdrawalMismatchError extends ServiceError {
  readonly code = 'idempotency_mismatch'
  constructor(id: string) {
    super(`Withdrawal ${id} was requested before, with another amount or address. Use a new id for a new withdrawal.`)
  }
}
