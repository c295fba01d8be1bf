import type { AccountRef } from '../db/account-ref.ts'
import type { Connection, Database } from '../db/database.ts'
import { rowsOf } from '../db/rows.ts'
import { fromAtomic, type Usdc } from '../money/usdc.ts'
import type { Account } from './accounts.ts'
import type { RequestId } from './request-id.ts'
import { pageOfAccount, pageValues, type TransferPage } from './transfer-page.ts'

/** A refund of a charge by the operator or, below 0, the reversal of one. */
export type Adjustment = {
  /** Chosen by the caller; makes the adjustment idempotent. */
  readonly id: string
  readonly amount: bigint
  readonly reason: string
  readonly madeBy: string
  /** The request whose charge is refunded. If a retry replaces that request, its charge is not refunded twice. */
  readonly requestId?: RequestId | undefined
}

export type AdjustmentDecision = {
  readonly decision: 'made' | 'stored' | 'ledger_frozen' | 'exceeds_room'
  /** The most that the account can be credited or debited now. */
  readonly room: Usdc
}

export async function adjustAccount(
  connection: Connection,
  { partition, id: accountId }: Pick<Account, 'partition' | 'id'>,
  { id, amount, reason, madeBy, requestId }: Adjustment,
): Promise<AdjustmentDecision> {
  const [row] = await connection.query<{ decision: AdjustmentDecision['decision']; room: bigint }>(
    'select decision, room from adjust_account($1, $2, $3, $4, $5, $6, $7)',
    [partition, accountId, id, amount, reason, madeBy, requestId ?? null],
  )
  return { decision: row!.decision, room: fromAtomic(row!.room) }
}

export type MadeAdjustment = Omit<Adjustment, 'requestId'> & {
  readonly requestId: RequestId | null
  readonly accountId: string
  readonly createdAt: Date
}

/** Newest first, of one account or of all. */
export async function listAdjustments(
  connection: Connection,
  accountId: string | undefined,
  rowsMax: number,
): Promise<readonly MadeAdjustment[]> {
  return connection.query<MadeAdjustment>(
    `select id, account_id as "accountId", amount, reason, made_by as "madeBy",
            request_id as "requestId", created_at as "createdAt" from adjustments
      where $1::uuid is null or account_id = $1 order by created_at desc, id limit $2`,
    [accountId ?? null, rowsMax],
  )
}

/** An adjustment as the account's holder sees it. */
export type GivenBack = {
  readonly id: string
  readonly amount: Usdc
  readonly reason: string
  readonly createdAt: Date
}

export async function listGivenBack(
  database: Database,
  { partition, accountId }: AccountRef,
  page: TransferPage,
): Promise<readonly GivenBack[]> {
  return rowsOf<GivenBack>(
    database.query(`select id, amount, reason, created_at from adjustments ${pageOfAccount}`, [
      partition,
      accountId,
      ...pageValues(page),
    ]),
  )
}
