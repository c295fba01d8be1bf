import { hourlyPaymentsMax } from '../config/config.ts'
import type { AccountRef } from '../db/account-ref.ts'
import type { Connection, Database } from '../db/database.ts'
import { wakeHolder } from '../db/exclusive.ts'
import { rowsOf } from '../db/rows.ts'
import { ServiceError } from '../errors.ts'
import { moneyFields } from '../money/money-fields.ts'
import { format, fromAtomic, type Usdc } from '../money/usdc.ts'
import { AccountSuspendedError, LedgerFrozenError } from './refusals.ts'
import { openTransferStates, withdrawalKinds } from './states.ts'
import { findTransfer, type Transfer, transferColumns } from './transfers.ts'
import {
  SmallWithdrawalTooSoonError,
  TooManyWithdrawalsError,
  WithdrawalBelowMinError,
  WithdrawalMismatchError,
} from './withdrawals.ts'

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
): Promise<Transfer> {
  const { partition, accountId, id, amount, min } = request
  await database.transaction(async (connection) => {
    const [row] = await connection.query<RefundDecision>(
      'select decision, refundable, recipient, refunded, available_at as "availableAt" from request_refund($1, $2, $3, $4, $5, $6)',
      [partition, accountId, id, amount ?? null, min, request.transferGas],
    )
    refuse(row!, request)
    // Above the signer's hourly limit it would never be signed. The amount of all refundable credit is known only now: the error rolls
    // the refund back.
    if (row!.refunded !== null && row!.refunded > hourlyPaymentsMax)
      throw new ServiceError(
        'invalid_value',
        `${format(fromAtomic(row!.refunded))} USDC cannot be refunded in one go: the maximum is ${format(hourlyPaymentsMax)} USDC. Refund it in parts with amount.`,
        { param: 'amount' },
      )
    if (row!.decision === 'requested') await alongside?.(connection, fromAtomic(row!.refunded!))
    await wakeHolder(connection, 'settlement')
  })
  const refund = await findTransfer(database, { partition, id })
  if (refund?.accountId !== accountId || refund.kind !== 'refund' || (amount !== undefined && refund.amount !== amount))
    throw new WithdrawalMismatchError(id)
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

/** Newest first. */
export function listRefunds(
  database: Database,
  { partition, accountId }: AccountRef,
  rowsMax: number,
): Promise<readonly Transfer[]> {
  return rowsOf<Transfer>(
    database.query(
      `select ${transferColumns} from transfers
        where partition = $1 and account_id = $2 and kind in ${withdrawalKinds} and kind = 'refund' order by created_at desc limit $3`,
      [partition, accountId, rowsMax],
    ),
  )
}

/**
 * Whether a refund may be submitted for the first time: its account is not suspended, and every payment that its credit can come from
 * is final on chain. A payment can fail after it was credited.
 */
export async function isRefundReady(
  database: Database,
  { partition, accountId, createdAt }: Transfer,
): Promise<boolean> {
  const rows = await database.query(
    `select from accounts a
      where a.partition = $1 and a.id = $2 and a.suspended_at is null
        and not exists (select from transfers p where p.partition = $1 and p.account_id = $2 and p.kind = 'x402'
                           and p.state in ${openTransferStates} and p.gateway_id is not null and p.created_at <= $3)`,
    [partition, accountId, createdAt],
  )
  return rows.length > 0
}

/** Shown wherever a wallet pays or is refunded. */
export const refundRule = `Each payment and refund costs ${format(transferGas)} USDC of gas: a refund leaves what charges have not covered of it as credit, which pays for requests.`

/** In 24 hours. `limit_withdrawal` has the same number. */
const refundsMax = 10
