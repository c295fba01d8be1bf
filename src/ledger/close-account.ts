import type { AccountRef } from '../db/account-ref.ts'
import { readClock } from '../db/clock.ts'
import type { Connection } from '../db/database.ts'
import { lockAccount } from '../db/lock-account.ts'
import { type ErrorDetails, ServiceError } from '../errors.ts'
import { format, type Usdc } from '../money/usdc.ts'
import { readRefundable } from './refunds.ts'
import { openTransferStates, uncreditedSweepStates, withdrawalKinds } from './states.ts'

/**
 * Marks an account as closed; throws while money of it can still move. Must be the first step of its transaction: it takes the
 * account's lock, as every writer does, so that no hold, deposit or withdrawal comes in between. Moves no money and deletes no row:
 * a remainder below the gateway's withdrawal fee, or credit that is not refundable, stays where it is. Unsettled charges become due immediately.
 */
export async function closeAccount(connection: Connection, account: AccountRef, depositMin: Usdc): Promise<void> {
  const { partition, accountId } = account
  await lockAccount(connection, account)
  checkNothingMoves(await readMovable(connection, account, depositMin), await readRefundable(connection, account))
  await connection.query('delete from replays where partition = $1 and account_id = $2', [partition, accountId])
  await connection.query(
    // All unsettled charges are due now, even where the seller owes the account: no later event would settle them.
    `update accounts set closed_at = coalesce(closed_at, $3), name = 'Account ' || left(id::text, 8),
            unpaid_since = case when entries > covered_entry then coalesce(unpaid_since, $3) end
      where partition = $1 and id = $2`,
    [partition, accountId, await readClock(connection)],
  )
}

/**
 * Reopens a closed account, without its former keys and sign-in methods. Only the key of a wallet account that stands for the wallet
 * works again: it has no secret that others may know, and without it the wallet could never pay again. False when it was open.
 */
export async function reopenAccount(connection: Connection, account: AccountRef): Promise<boolean> {
  const { partition, accountId } = account
  await lockAccount(connection, account)
  const [reopened] = await connection.query<{ wallet: string | null }>(
    `update accounts set closed_at = null,
            name = case when wallet is null then name else 'Wallet ' || left(wallet, 6) || '…' || right(wallet, 4) end
      where partition = $1 and id = $2 and closed_at is not null returning wallet`,
    [partition, accountId],
  )
  if (reopened === undefined) return false
  if (reopened.wallet !== null) {
    await connection.query(
      `update api_keys set revoked_at = null, disabled = false where partition = $1 and account_id = $2 and hint = 'x402'`,
      [partition, accountId],
    )
  }
  return true
}

/** The account's money that can move or is moving. */
type Movable = {
  readonly available: bigint
  readonly fee_max: bigint
  readonly held: bigint
  readonly open_requests: number
  readonly withdrawing: bigint
  readonly arriving: bigint
  /** It pays over x402. */
  readonly is_wallet: boolean
}

/**
 * Ignores arrivals below the sweep minimum, which may wait forever: anyone can send such an amount, and must not be able to block
 * closing an account.
 */
async function readMovable(connection: Connection, account: AccountRef, depositMin: Usdc): Promise<Movable> {
  const [row] = await connection.query<Movable>(
    `select a.wallet is not null as is_wallet, a.gateway + a.credit - a.extended as available, a.held + a.extended as held, l.withdrawal_fee_max as fee_max,
            (select count(*)::int from holds h where h.partition = $1 and h.account_id = a.id) as open_requests,
            (select coalesce(sum(w.amount), 0)::bigint from transfers w
              where w.partition = $1 and w.account_id = a.id and w.kind in ${withdrawalKinds} and w.state in ${openTransferStates}) as withdrawing,
            v.sweeping + case when v.waiting >= $3 then v.waiting else 0 end as arriving
       from accounts a
       cross join ledger_state l
       cross join lateral (
         select coalesce(sum(v.amount) filter (where s.id is not null), 0)::bigint as sweeping,
                coalesce(sum(v.amount) filter (where s.id is null), 0)::bigint as waiting
           from arrivals v left join sweeps s on s.partition = $1 and s.id = v.sweep_id
          where v.partition = $1 and v.account_id = a.id
            and (s.id is null or s.state in ${uncreditedSweepStates})) v
      where a.partition = $1 and a.id = $2`,
    [account.partition, account.accountId, depositMin],
  )
  return row!
}

function checkNothingMoves(movable: Movable, refundable: Usdc): void {
  const { available, fee_max, held, open_requests, withdrawing, arriving, is_wallet } = movable
  if (open_requests > 0 || held > 0n) {
    const requests = open_requests === 1 ? '1 request is open and holds' : `${open_requests} requests are open and hold`
    throw new NotClosableError(`${requests} ${format(held)} USDC. Close the account when they have ended.`)
  }
  if (withdrawing > 0n)
    throw new NotClosableError(`${format(withdrawing)} USDC is being withdrawn. Close the account when it has arrived.`)
  if (arriving > 0n)
    throw new NotClosableError(`${format(arriving)} USDC is being deposited. Close the account when it is withdrawn.`)
  if (refundable > 0n)
    throw new NotClosableError(`${format(refundable)} USDC of the wallet's credit can be refunded. Refund it first.`)
  if (!is_wallet && available > fee_max)
    throw new NotClosableError(
      `${format(available)} USDC is available. An account can be closed with at most ${format(fee_max)} USDC left, the maximum withdrawal fee. Withdraw first.`,
      { extra: { available_atomic: available.toString(), withdrawal_fee_max_atomic: fee_max.toString() } },
    )
}

/** The account cannot be closed yet. It is unchanged. */
export class NotClosableError extends ServiceError {
  constructor(message: string, details?: ErrorDetails) {
    super('account_not_closable', message, details)
  }
}
