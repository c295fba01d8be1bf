import { hourlyPaymentsMax } from '../config/config.ts'
import type { AccountRef } from '../db/account-ref.ts'
import { isLongerAgo, readClock } from '../db/clock.ts'
import type { Connection, Database } from '../db/database.ts'
import { ServiceError } from '../errors.ts'
import { moneyFields } from '../money/money-fields.ts'
import { format, fromAtomic, type Usdc } from '../money/usdc.ts'
import { AccountSuspendedError, LedgerFrozenError } from './refusals.ts'
import { openWithdrawalStates, openX402States, type WithdrawalState } from './states.ts'
import {
  pauseOfWithdrawal,
  SmallWithdrawalTooSoonError,
  TooManyWithdrawalsError,
  WithdrawalBelowMinError,
  WithdrawalMismatchError,
} from './withdrawals.ts'

/** Unused credit on its way back to the wallet that paid it. It is a withdrawal that the seller pays. */
export type Refund = {
  readonly partition: number
  readonly id: string
  readonly accountId: string
  readonly amount: Usdc
  /** The wallet. */
  readonly recipient: string
  readonly state: WithdrawalState
  /** How often it was submitted. */
  readonly attempts: number
  readonly gatewayId: string | undefined
  /** The sequence and epoch in the nonce of the seller's authorization. */
  readonly sequence: bigint
  readonly epoch: number
  readonly createdAt: Date
  /** The window of the authorization begins here. */
  readonly authorizedAt: Date
  readonly transactionHash: string | undefined
}

/**
 * What one transfer costs the relayer at most, at 20 gwei: one that is alone in its batch, of a wallet whose nonce and balance are new
 * there. A payment of a wallet is worth at least this much, and `refundable_credit` leaves as much of the credit for each payment and refund.
 */
export const transferGas = fromAtomic(2_000n)

export type NewRefund = AccountRef & {
  /** Chosen by the caller; makes the refund idempotent. */
  readonly id: string
  /** Undefined: all refundable credit. */
  readonly amount: Usdc | undefined
  /** A smaller amount is paid only when it is all refundable credit, and once in 24 hours: each refund costs the relayer gas. */
  readonly min: Usdc
  /** `refundable_credit` leaves this much credit for each payment and refund. */
  readonly transferGas: Usdc
}

/**
 * Takes unused credit out of the account, to be paid back. Calling it again with the same id returns the stored refund. `alongside`
 * writes into the same transaction, once for each refund: the account's log.
 */
export async function requestRefund(
  database: Database,
  request: NewRefund,
  alongside?: (connection: Connection, amount: Usdc) => Promise<void>,
): Promise<Refund> {
  const { partition, accountId, id, amount, min } = request
  await database.transaction(async (connection) => {
    const [row] = await connection.query<RefundDecision>(
      'select decision, refundable, recipient, refunded, available_at as "availableAt" from request_refund($1, $2, $3, $4, $5, $6)',
      [partition, accountId, id, amount ?? null, min, request.transferGas],
    )
    refuse(row!, request)
    // Also for all refundable credit, whose amount is known only now. The error rolls the refund back.
    if (row!.refunded !== null && row!.refunded > hourlyPaymentsMax)
      throw new RefundAboveMostError(fromAtomic(row!.refunded))
    if (row!.decision === 'requested') await alongside?.(connection, fromAtomic(row!.refunded!))
  })
  const refund = await findRefund(database, { partition, accountId }, id)
  if (refund === undefined || (amount !== undefined && refund.amount !== amount)) throw new WithdrawalMismatchError(id)
  return refund
}

type RefundDecision = {
  readonly decision: string
  readonly refundable: bigint
  readonly recipient: string | null
  readonly refunded: bigint | null
  readonly availableAt: Date | null
}

function refuse({ decision, recipient, availableAt, ...row }: RefundDecision, request: NewRefund): void {
  const refundable = fromAtomic(row.refundable)
  const { amount = refundable, min } = request
  if (decision === 'nothing')
    throw new ServiceError(
      'invalid_value',
      `This wallet has no credit here that can be paid back. Nothing was paid back. ${refundRule}`,
    )
  if (decision === 'ledger_frozen') throw new LedgerFrozenError()
  if (decision === 'account_suspended') throw new AccountSuspendedError(recipient!)
  if (decision === 'insufficient_balance')
    throw new ServiceError(
      'insufficient_balance',
      `${format(amount)} USDC cannot be paid back: ${format(refundable)} USDC can. Credit held by open requests becomes available when they end. ${refundRule}`,
      { extra: moneyFields({ required: amount, available: refundable }) },
    )
  if (decision === 'below_min') throw new WithdrawalBelowMinError(amount, min, refundable, 'refunded')
  if (decision === 'small_too_soon') throw new SmallWithdrawalTooSoonError(amount, min, availableAt!, 'refunded')
  if (decision === 'too_many_open') throw new TooManyWithdrawalsError()
  if (decision === 'too_many_refunds')
    throw new ServiceError(
      'invalid_value',
      `This wallet was refunded ${refundsMax} times within 24 hours; the limit is ${refundsMax}. The next refund is possible at ${availableAt!.toISOString()}. Until then its credit pays for requests.`,
    )
}

/** What a wallet account could be paid back now. */
export async function readRefundable(connection: Connection, { partition, accountId }: AccountRef): Promise<Usdc> {
  const [row] = await connection.query<{ refundable: bigint }>('select refundable_credit($1, $2, $3) as refundable', [
    partition,
    accountId,
    transferGas,
  ])
  return fromAtomic(row!.refundable)
}

async function findRefund(
  database: Database,
  { partition, accountId }: AccountRef,
  id: string,
): Promise<Refund | undefined> {
  const [row] = await database.query<RefundRow>(
    `select ${columns} from withdrawals where partition = $1 and account_id = $2 and id = $3 and refund is not null`,
    [partition, accountId, id],
  )
  return row === undefined ? undefined : readRefund(row)
}

/** Newest first. */
export async function listRefunds(
  database: Database,
  { partition, accountId }: AccountRef,
  rowsMax: number,
): Promise<readonly Refund[]> {
  const rows = await database.query<RefundRow>(
    `select ${columns} from withdrawals where partition = $1 and account_id = $2 and refund is not null
      order by created_at desc limit $3`,
    [partition, accountId, rowsMax],
  )
  return rows.map(readRefund)
}

/** Refunds that are due for a check. */
export async function findOpenRefunds(database: Database, rowsMax: number): Promise<readonly Refund[]> {
  const rows = await database.queryPrepared<RefundRow>(
    'find_open_refunds',
    `select ${columns} from withdrawals where state in ${openWithdrawalStates} and refund is not null
        and ${isLongerAgo('changed_at', pauseOfWithdrawal)}
      order by changed_at limit $1`,
    [rowsMax],
  )
  return rows.map(readRefund)
}

/**
 * Whether a refund may be submitted for the first time: its account is not suspended, and every payment that its credit can come from
 * is final on chain. A payment can fail after it was credited.
 */
export async function isRefundReady(database: Database, { partition, id }: Refund): Promise<boolean> {
  const rows = await database.query(
    `select from withdrawals w join accounts a on a.partition = $1 and a.id = w.account_id
      where w.partition = $1 and w.id = $2 and a.suspended_at is null
        and not exists (select from x402_payments p where p.partition = $1 and p.account_id = w.account_id
                           and p.state in ${openX402States} and p.credited_at <= w.created_at)`,
    [partition, id],
  )
  return rows.length > 0
}

/** Sets a new validity window, for the next attempt. */
export async function renewRefundWindow(database: Database, { partition, id }: Refund): Promise<Date> {
  const now = await readClock(database)
  await database.query('update withdrawals set settled_at = $3 where partition = $1 and id = $2', [partition, id, now])
  return now
}

const columns = `partition, id, account_id, amount, recipient, state, attempts, gateway_id, refund, epoch, created_at, settled_at,
  encode(tx_hash, 'hex') as tx_hash`

type RefundRow = {
  readonly partition: number
  readonly id: string
  readonly account_id: string
  readonly amount: bigint
  readonly recipient: string
  readonly state: WithdrawalState
  readonly attempts: number
  readonly gateway_id: string | null
  readonly refund: bigint
  readonly epoch: bigint
  readonly created_at: Date
  readonly settled_at: Date | null
  readonly tx_hash: string | null
}

function readRefund(row: RefundRow): Refund {
  return {
    partition: row.partition,
    id: row.id,
    accountId: row.account_id,
    amount: fromAtomic(row.amount),
    recipient: row.recipient,
    state: row.state,
    attempts: row.attempts,
    gatewayId: row.gateway_id ?? undefined,
    sequence: row.refund,
    epoch: Number(row.epoch),
    createdAt: row.created_at,
    authorizedAt: row.settled_at ?? row.created_at,
    transactionHash: row.tx_hash === null ? undefined : `0x${row.tx_hash}`,
  }
}

/** Shown wherever a wallet pays or is refunded. */
export const refundRule = `Each payment and refund costs ${format(transferGas)} USDC of gas: a refund leaves what charges have not covered of it as credit, which pays for requests.`

/** Above the signer's hourly limit: it would never be signed. */
export class RefundAboveMostError extends ServiceError {
  constructor(amount: Usdc) {
    super(
      'invalid_value',
      `${format(amount)} USDC cannot be refunded in one go: the maximum is ${format(hourlyPaymentsMax)} USDC. Refund it in parts with amount.`,
      { param: 'amount' },
    )
  }
}

/** In 24 hours. `limit_withdrawal` has the same number. */
const refundsMax = 10
