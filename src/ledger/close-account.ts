import type { AccountRef } from '../account-ref.ts'
import type { Connection } from '../db/database.ts'
import { ServiceError } from '../errors.ts'
import { format, fromAtomic, type Usdc } from '../money/usdc.ts'
import { openWithdrawalStates, uncreditedSweepStates } from './open-states.ts'

/**
 * Marks an account as closed, or throws while money of it can move. The first step of its transaction: it takes the account's lock, as
 * every writer does, so that no hold, deposit or withdrawal comes in between. No money moves, and no row of the books goes: a
 * remainder that the gateway would keep of a withdrawal stays where it is. Payments that are signed are settled all the same.
 */
export async function closeAccount(connection: Connection, account: AccountRef, depositMin: Usdc): Promise<void> {
  const { partition, accountId } = account
  await connection.query('select from accounts where partition = $1 and id = $2 for no key update', [
    partition,
    accountId,
  ])
  // A statement of its own: in one with the lock, what is read would be older than the lock.
  checkNothingMoves(await readMovable(connection, account, depositMin))
  await connection.query('delete from replays where partition = $1 and account_id = $2', [partition, accountId])
  await connection.query('delete from account_alerts where partition = $1 and account_id = $2', [partition, accountId])
  await connection.query(
    `update accounts set closed_at = coalesce(closed_at, clock_timestamp()), name = 'Account ' || left(id::text, 8)
      where partition = $1 and id = $2`,
    [partition, accountId],
  )
}

/** Opens a closed account again, as empty of keys and ways in as it was left. False when it was open. */
export async function reopenAccount(connection: Connection, { partition, accountId }: AccountRef): Promise<boolean> {
  const rows = await connection.query(
    'update accounts set closed_at = null where partition = $1 and id = $2 and closed_at is not null returning id',
    [partition, accountId],
  )
  return rows.length > 0
}

/** What of an account's money can move or is moving. */
type Movable = {
  readonly available: bigint
  readonly fee_max: bigint
  readonly held: bigint
  readonly open_requests: number
  readonly withdrawing: bigint
  readonly arriving: bigint
}

/** What has arrived and is less than is swept waits for more, perhaps for ever: anybody can send that much, so it holds up nobody. */
async function readMovable(connection: Connection, account: AccountRef, depositMin: Usdc): Promise<Movable> {
  const [row] = await connection.query<Movable>(
    `select a.gateway + a.credit - a.extended as available, a.held + a.extended as held, l.withdrawal_fee_max as fee_max,
            (select count(*)::int from requests r where r.status = 'held' and r.account_id = a.id) as open_requests,
            (select coalesce(sum(w.amount), 0)::bigint from withdrawals w
              where w.partition = a.partition and w.account_id = a.id and w.state in ${openWithdrawalStates}) as withdrawing,
            v.sweeping + case when v.waiting >= $3 then v.waiting else 0 end as arriving
       from accounts a
       cross join ledger_state l
       cross join lateral (
         select coalesce(sum(v.amount) filter (where s.id is not null), 0)::bigint as sweeping,
                coalesce(sum(v.amount) filter (where s.id is null), 0)::bigint as waiting
           from arrivals v left join sweeps s on s.partition = v.partition and s.id = v.sweep_id
          where v.partition = a.partition and v.account_id = a.id
            and (s.id is null or s.state in ${uncreditedSweepStates})) v
      where a.partition = $1 and a.id = $2`,
    [account.partition, account.accountId, depositMin],
  )
  return row!
}

function checkNothingMoves({ available, fee_max, held, open_requests, withdrawing, arriving }: Movable): void {
  if (open_requests > 0 || held > 0n) {
    const requests = open_requests === 1 ? '1 request is open and holds' : `${open_requests} requests are open and hold`
    throw new NotClosableError(`${requests} ${format(held)} USDC. Close the account when nothing is held any more.`)
  }
  if (withdrawing > 0n)
    throw new NotClosableError(`${format(withdrawing)} USDC is being withdrawn. Close the account when it has arrived.`)
  if (arriving > 0n)
    throw new NotClosableError(`${format(arriving)} USDC is being deposited. Close the account when it is withdrawn.`)
  if (available > fee_max) throw new MoneyLeftError(fromAtomic(available), fromAtomic(fee_max))
}

/** The account stays as it is. */
export class NotClosableError extends ServiceError {
  readonly code = 'account_not_closable'
}

export class MoneyLeftError extends NotClosableError {
  constructor(available: Usdc, feeMax: Usdc) {
    super(
      `${format(available)} USDC is available, and an account is closed with at most ${format(feeMax)} USDC left: what the gateway may keep of a withdrawal. Withdraw first.`,
      { extra: { available_atomic: available.toString(), withdrawal_fee_max_atomic: feeMax.toString() } },
    )
  }
}
