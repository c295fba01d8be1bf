import type { AccountRef } from '../db/account-ref.ts'
import type { Connection } from '../db/database.ts'
import { rowOf } from '../db/rows.ts'
import { ServiceError } from '../errors.ts'
import { format, type Usdc } from '../money/usdc.ts'

/**
 * Throws when the keys of a member together could spend more than the member's limit. Call it last in a transaction that holds the
 * account's lock and has changed a key or the limit: the error rolls the change back. A key counts with its limit, or with its spend if
 * that is higher; a revoked key counts with its spend and holds. All keys share the member's window, so requests need no check
 * of their own (docs/decisions/0018-members.md).
 */
export async function checkMemberLimit(
  connection: Connection,
  { partition, accountId }: AccountRef,
  personId: string,
): Promise<void> {
  const row = await rowOf<Allocation>(
    connection.query(
      `select m.spending_limit as "limit", m.limit_window, coalesce(sum(u.amount), 0)::bigint as allocated,
            coalesce(bool_or(u.is_usable and (k.limit_amount is null or k.limit_window <> m.limit_window)), false) as is_open
       from memberships m
       left join api_keys k on k.partition = m.partition and k.account_id = m.account_id and k.made_by = m.person_id
        and (k.revoked_at is null or k.disabled or k.revoked_at >= m.limit_since)
       left join lateral (
         select w.is_usable, case when w.is_usable then greatest(k.limit_amount, w.used) else w.used end as amount
           from (select k.revoked_at is null or k.disabled as is_usable,
                        case when k.window_start >= window_start(k.limit_window, clock_timestamp()) then k.spent + k.held else 0 end as used) w
       ) u on k.id is not null
      where m.partition = $1 and m.account_id = $2 and m.person_id = $3 and m.spending_limit is not null
      group by m.spending_limit, m.limit_window`,
      [partition, accountId, personId],
    ),
  )
  if (row === undefined) return
  const { limit, limitWindow, allocated, isOpen } = row
  if (isOpen)
    throw new ServiceError(
      'member_limit_exceeded',
      `This member may spend ${format(limit)} USDC (limit window: ${limitWindow}). Each key of the member needs a limit with the window "${limitWindow}". Nothing was changed.`,
      { param: 'limit', extra: { member_limit_atomic: limit.toString(), limit_window: limitWindow } },
    )
  if (allocated > limit)
    throw new ServiceError(
      'member_limit_exceeded',
      `The keys of this member could spend ${format(allocated)} USDC together; the member’s limit is ${format(limit)} USDC. Lower a key’s limit, or ask an admin to raise the member’s limit. Nothing was changed.`,
      { param: 'limit', extra: { member_limit_atomic: limit.toString(), allocated_atomic: allocated.toString() } },
    )
}

type Allocation = {
  readonly limit: Usdc
  readonly limitWindow: string
  readonly allocated: Usdc
  readonly isOpen: boolean
}
