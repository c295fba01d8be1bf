import { plainArray, rowArray } from '../db/array-literal.ts'
import { isLongerAgo } from '../db/clock.ts'
import { type Database, isLockTimeout } from '../db/database.ts'
import { rowOf, rowsOf } from '../db/rows.ts'
import type { Usdc } from '../money/usdc.ts'
import type { Hex } from '../receipts/hex.ts'
import { openTransferStates, type TransferKind, type TransferState } from './states.ts'

/** Money that moves on chain. `settlement/transfers/machine.ts` explains the states. */
export type Transfer = {
  readonly partition: number
  readonly id: string
  readonly kind: TransferKind
  /** Empty for payouts: the seller is no account. */
  readonly accountId: string
  /** What leaves the account or the seller. The recipient gets `amount - feeMax`. */
  readonly amount: Usdc
  /** The gateway's maximum fee, reserved and signed with the intent. */
  readonly feeMax: Usdc
  /** The fee that the gateway kept; the rest of `feeMax` was returned. Undefined until the transfer is confirmed. */
  readonly fee: Usdc | undefined
  /** Withdrawals: all charges up to this entry are paid on chain before the intent is submitted. */
  readonly afterEntry: bigint
  /** The address at the other end. */
  readonly counterparty: string
  /** Epoch and sequence in the nonce of the authorization. */
  readonly epoch: number
  readonly sequence: bigint
  /** Payments over x402 only: what the wallet has signed. Seconds since 1970. */
  readonly nonce: Hex | undefined
  readonly validAfter: number | undefined
  readonly validBefore: number | undefined
  readonly isExpired: boolean | undefined
  readonly state: TransferState
  readonly reason: string | undefined
  /** How often it was submitted. */
  readonly attempts: number
  readonly gatewayId: string | undefined
  /** The signature of the intent at the gateway; set before it may have been submitted. */
  readonly signature: Hex | undefined
  readonly transactionHash: string | undefined
  readonly createdAt: Date
  readonly changedAt: Date
  /** The window of the authorization begins here. */
  readonly authorizedAt: Date
  /** When all earlier charges were paid on chain. */
  readonly readyAt: Date | undefined
  /** When it was first submitted. */
  readonly sentAt: Date | undefined
}

/** A transfer's next state, and what is known about it. */
export type TransferStep = {
  readonly state: TransferState
  readonly reason?: string | undefined
  readonly gatewayId?: string | undefined
  readonly transactionHash?: string | undefined
  /** With `confirmed`: the gateway's actual fee. Defaults to the maximum. */
  readonly fee?: bigint | undefined
  readonly signature?: Hex | undefined
  readonly authorizedAt?: Date | undefined
}

type TransferRef = Pick<Transfer, 'partition' | 'accountId' | 'id'>

/** `attempts` undefined: the step holds for whatever attempt. */
export type TransferNews = TransferStep & { readonly transfer: TransferRef & { readonly attempts?: number } }

/** Tries of two seconds each to record a step of a transfer whose account is locked. */
const lockedTriesMax = 30

/**
 * Takes a transfer to its next state, and moves the account's money when it ends. False when it has ended or was submitted again
 * meanwhile: then the caller's decision is obsolete.
 */
export async function advanceTransfer(
  database: Database,
  transfer: NonNullable<TransferNews['transfer']>,
  step: TransferStep,
): Promise<boolean> {
  for (let tries = 1; ; tries += 1) {
    try {
      return (await advanceAll(database, transfer.partition, [{ ...step, transfer }])) > 0
    } catch (error) {
      // The answer of the gateway must not be lost because another session has locked the account.
      if (!isLockTimeout(error) || tries === lockedTriesMax) throw error
    }
  }
}

async function advanceAll(database: Database, partition: number, news: readonly TransferNews[]): Promise<number> {
  const accounts = news.flatMap(({ transfer: { accountId } }) => (accountId === '' ? [] : [accountId]))
  const rows = await database.queryPrepared('advance_transfers', 'select from advance_transfers($1, $2, $3)', [
    partition,
    plainArray([...new Set(accounts)]),
    rowArray(
      news.map(({ transfer, ...step }) => [
        transfer.id,
        transfer.attempts,
        step.state,
        step.reason,
        step.gatewayId,
        bytesOf(step.transactionHash),
        step.fee,
        bytesOf(step.signature),
        step.authorizedAt?.toISOString(),
      ]),
    ),
  ])
  return rows.length
}

/** Stores news of transfers that the gateway reports. Skips accounts that stay locked: ask again. Returns how many moved. */
export async function advanceEach(database: Database, news: readonly TransferNews[]): Promise<number> {
  let moved = 0
  for (const item of news) {
    try {
      moved += await advanceAll(database, item.transfer.partition, [item])
    } catch (error) {
      if (!isLockTimeout(error)) throw error
    }
  }
  return moved
}

/** Marks a transfer as checked without progress, so that others are checked first. */
export async function touchTransfer(
  database: Database,
  { partition, id, state }: Pick<Transfer, 'partition' | 'id' | 'state'>,
): Promise<void> {
  await database.query('update transfers set changed_at = now() where partition = $1 and id = $2 and state = $3', [
    partition,
    id,
    state,
  ])
}

/** SQL: the older a transfer is, the less often it is checked, down to twice a minute. */
const pause = `least((changed_at - created_at) / 8, interval '30 seconds')`

/** Open transfers of that kind that are due for a check, those that waited longest first. */
export function findDueTransfers(
  database: Database,
  kind: TransferKind,
  rowsMax: number,
): Promise<readonly Transfer[]> {
  return rowsOf<Transfer>(
    database.queryPrepared(
      'find_due_transfers',
      `select ${transferColumns} from transfers
        where state in ${openTransferStates} and kind = $1 and ${isLongerAgo('changed_at', pause)}
        order by changed_at limit $2`,
      [kind, rowsMax],
    ),
  )
}

/** Transfers that the gateway has and that are not final, by its ids. */
export function findTransfersAtGateway(
  database: Database,
  kind: TransferKind,
  gatewayIds: readonly string[],
): Promise<readonly Transfer[]> {
  return rowsOf<Transfer>(
    database.queryPrepared(
      'find_transfers_at_gateway',
      `select ${transferColumns} from transfers
        where gateway_id = any ($2) and kind = $1 and state in ('received', 'batched')`,
      [kind, gatewayIds],
    ),
  )
}

export function findTransfer(
  database: Database,
  { partition, id }: Pick<Transfer, 'partition' | 'id'>,
): Promise<Transfer | undefined> {
  return rowOf<Transfer>(
    database.query(`select ${transferColumns} from transfers where partition = $1 and id = $2`, [partition, id]),
  )
}

export const transferColumns = `partition, id, kind, coalesce(account_id::text, '') as account_id, amount, fee_max, fee, after_entry,
  counterparty, coalesce(epoch, 0)::int as epoch, coalesce(sequence, 0) as sequence, '0x' || encode(nonce, 'hex') as nonce,
  valid_after::float8 as valid_after, valid_before::float8 as valid_before, valid_before < extract(epoch from clock_timestamp()) as is_expired,
  state, reason, attempts, gateway_id, '0x' || encode(signature, 'hex') as signature, '0x' || encode(tx_hash, 'hex') as transaction_hash,
  created_at, changed_at, coalesce(authorized_at, created_at) as authorized_at, ready_at, sent_at`

function bytesOf(hex: string | undefined): Buffer | undefined {
  return hex === undefined ? undefined : Buffer.from(hex.slice(2), 'hex')
}
