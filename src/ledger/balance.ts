import type { AccountRef } from '../db/account-ref.ts'
import type { Database } from '../db/database.ts'
import { rowOf } from '../db/rows.ts'
import { type Usdc, zero } from '../money/usdc.ts'
import { readRefundable } from './refunds.ts'
import { openTransferStates, uncreditedSweepStates, withdrawalKinds } from './states.ts'

/** An account's money as its holder sees it, at one instant. */
export type Balance = {
  readonly accountId: string
  readonly available: Usdc
  readonly gateway: Usdc
  readonly credit: Usdc
  /** The part of a wallet's credit that a refund pays back. */
  readonly refundable: Usdc
  readonly held: Usdc
  readonly extended: Usdc
  /** Charged and not yet covered by payments that are final on chain. */
  readonly unsettled: Usdc
  readonly deposited: Usdc
  readonly withdrawn: Usdc
  readonly charged: Usdc
  /** Refunded charges. */
  readonly givenBack: Usdc
  readonly pendingDeposits: Usdc
  readonly pendingWithdrawals: Usdc
  /** The most that the gateway would keep of a withdrawal requested now. */
  readonly withdrawalFeeMax: Usdc
  /** The operator suspended the account: its requests are refused. */
  readonly suspended: boolean
  /** The account has more unsettled charges than allowed. */
  readonly settlementDelayed: boolean
  /** The ledger is frozen: all requests are refused. */
  readonly frozen: boolean
  readonly openRequests: number
  readonly oldestHoldAt: Date | undefined
  readonly at: Date
}

export async function readBalance(database: Database, { partition, accountId }: AccountRef): Promise<Balance> {
  const row = await rowOf<Omit<Balance, 'refundable'> & { readonly isWallet: boolean }>(
    database.queryPrepared(
      'read_balance',
      `select a.id as account_id, a.gateway + a.credit - a.extended as available, a.gateway, a.credit, a.held, a.extended, u.unsettled, a.deposited, a.withdrawn, a.charged, a.given_back,
            a.wallet is not null as is_wallet,
            a.suspended_at is not null as suspended, u.unsettled > l.unsettled_cap as settlement_delayed,
            l.frozen_at is not null as frozen, l.withdrawal_fee_max,
            (select coalesce(sum(v.amount), 0)::bigint from arrivals v
               left join sweeps s on s.partition = $1 and s.id = v.sweep_id
              where v.partition = $1 and v.account_id = a.id
                and (s.id is null or s.state in ${uncreditedSweepStates})) as pending_deposits,
            (select coalesce(sum(w.amount), 0)::bigint from transfers w
              where w.partition = $1 and w.account_id = a.id and w.kind in ${withdrawalKinds} and w.state in ${openTransferStates}) as pending_withdrawals,
            o.open_requests, o.oldest_hold_at, clock_timestamp() as at
       from accounts a
       cross join ledger_state l
       -- What a wallet paid in advance is credit: it owes nothing.
       cross join lateral (select case when a.wallet is null then a.charged - a.given_back - a.paid
                                       else greatest(0, a.charged - a.given_back - a.paid) end as unsettled) u
       cross join lateral (select count(*)::int as open_requests, min(h.created_at) as oldest_hold_at from holds h
                            where h.partition = $1 and h.account_id = a.id) o
      where a.partition = $1 and a.id = $2`,
      [partition, accountId],
    ),
  )
  const { isWallet, ...balance } = row!
  return { ...balance, refundable: isWallet ? await readRefundable(database, { partition, accountId }) : zero }
}
