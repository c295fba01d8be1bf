import { isLongerAgo } from '../db/clock.ts'
import type { Connection, Database } from '../db/database.ts'
import { lockAccount } from '../db/lock-account.ts'
import { rowsOf } from '../db/rows.ts'
import { writeEvent } from '../db/write-event.ts'
import type { Usdc } from '../money/usdc.ts'
import type { DepositAccount } from './deposit-addresses.ts'
import { openSweepStates, type SweepState } from './states.ts'

/**
 * The failure reason of a sweep whose nonce was used by a sweep that the restored ledger lacks. The next nonce is tried
 * immediately.
 */
export const nonceUsed = 'nonce used before'

/**
 * A sweep costs the same gas for any amount. Amounts below this come after larger ones, and an account's small amounts are swept
 * together, once in ten minutes: sending many of them must not delay other deposits. Atomic USDC.
 */
export const smallSweepMax = 1_000_000n

const smallSweepPause = `interval '10 minutes'`

/** Large amounts first; then round robin over accounts, by how often each was swept within the hour; then by amount. */
function sweepOrder(amount: string, partition: string, account: string): string {
  return `${amount} < ${smallSweepMax},
          (select count(*) from sweeps o where o.partition = ${partition} and o.account_id = ${account}
                                           and o.state in ('confirmed', 'credited')
                                           and o.changed_at > clock_timestamp() - interval '1 hour'),
          ${amount} desc`
}

/**
 * Accounts with unswept arrivals of the last ten minutes, in sweep order. Older arrivals are too small or were refused: the check
 * of balances once a minute finds them, and this must not return them repeatedly.
 */
export async function findAccountsToSweep(
  database: Database,
  amountMin: bigint,
  rowsMax: number,
): Promise<readonly (DepositAccount & { readonly amount: bigint })[]> {
  return database.queryPrepared<DepositAccount & { readonly amount: bigint }>(
    'find_accounts_to_sweep',
    `with recent as (select distinct partition, account_id from arrivals
                      where sweep_id is null and seen_at > now() - interval '10 minutes')
     select a.partition, a.id, a.address, w.amount::bigint as amount from recent r
       join accounts a on a.partition = r.partition and a.id = r.account_id
       join lateral (select sum(x.amount) as amount from arrivals x
                      where x.partition = a.partition and x.account_id = a.id and x.sweep_id is null) w on true
      where a.address is not null and w.amount >= $1
        and not exists (select from sweeps s where s.partition = a.partition and s.account_id = a.id
                                               and s.state in ${openSweepStates})
        and (w.amount >= ${smallSweepMax}
             or not exists (select from sweeps s where s.partition = a.partition and s.account_id = a.id
                                                   and ${isPause('s')}))
      order by ${sweepOrder('w.amount', 'a.partition', 'a.id')}
      limit $2`,
    [amountMin, rowsMax],
  )
}

/** Whether a sweep is so recent that the account's next small one waits. */
function isPause(sweep: string): string {
  return `${sweep}.state in ('confirmed', 'credited') and not ${isLongerAgo(`${sweep}.changed_at`, smallSweepPause)}`
}

/** SQL: until when the account's small amounts wait after its last sweep; null where they do not. */
export function smallSweepWait(partition: string, account: string): string {
  return `(select max(p.changed_at) + ${smallSweepPause} from sweeps p
            where p.partition = ${partition} and p.account_id = ${account} and ${isPause('p')}
              and ${smallSweepMax} > (select sum(u.amount) from arrivals u where u.partition = ${partition}
                                         and u.account_id = ${account} and u.sweep_id is null))`
}

/** The sweeps that the relayer pays for: those of the last hour, and those that wait. */
export async function countSweepDemand(database: Database, amountMin: bigint): Promise<number> {
  const [row] = await database.query<{ count: number }>(
    `select ((select count(*) from sweeps
               where state in ${openSweepStates}
                  or (signed_tx is not null and changed_at > clock_timestamp() - interval '1 hour'))
           + (select count(*) from (select 1 from arrivals where sweep_id is null
                                     group by partition, account_id having sum(amount) >= $1) w))::float8 as count`,
    [amountMin],
  )
  return row!.count
}

export type Sweep = {
  readonly partition: number
  readonly id: string
  readonly accountId: string
  readonly address: string
  readonly amount: Usdc
  readonly nonce: bigint
  readonly signedTransaction: Buffer | undefined
  readonly transactionHash: string | undefined
  readonly state: SweepState
  readonly createdAt: Date
  /** Since it was planned, or since its transaction was stored. */
  readonly ageMs: bigint
}

/** `amount` is the balance of the address at `block`. */
export type SweepPlan = { readonly id: string; readonly amount: bigint; readonly block: bigint }

/**
 * Plans a sweep into the gateway, of all that arrived up to its block. An account has one sweep under way at a time. After a failure it
 * waits a minute, and twice as long after each further failure in a row, up to a day: a reverted transaction costs gas, and the cause,
 * such as a token's blocklist, usually fails the next sweep too. A small amount also waits after a successful sweep. Returns whether it
 * was planned.
 */
export async function planSweep(
  database: Database,
  account: DepositAccount,
  { id, amount, block }: SweepPlan,
): Promise<boolean> {
  return database.transaction(async (connection) => {
    await lockAccount(connection, { partition: account.partition, accountId: account.id })
    const planned = await connection.query(insertSweep, [account.partition, id, account.id, amount, nonceUsed])
    if (planned.length === 0) return false
    await connection.query(
      'update arrivals set sweep_id = $2 where partition = $1 and account_id = $3 and sweep_id is null and block <= $4',
      [account.partition, id, account.id, block],
    )
    await writeEvent(connection, { partition: account.partition, accountId: account.id }, 'deposit.updated', {})
    return true
  })
}

const insertSweep = `
  with own as (select nonce, state, reason, changed_at from sweeps where partition = $1 and account_id = $3),
       failed as (select count(*) as count, max(changed_at) as last from own
                   where state = 'failed' and reason is distinct from $5
                     and nonce > coalesce((select max(nonce) from own where state in ('confirmed', 'credited')), -1))
  insert into sweeps (partition, id, account_id, amount, nonce, state)
  select $1, $2, $3, $4::bigint, coalesce((select max(nonce) + 1 from own), 0), 'planned' from failed f
   where not exists (select from own where state in ${openSweepStates})
     and ($4::bigint >= ${smallSweepMax} or not exists (select from own where ${isPause('own')}))
     and (f.count = 0 or ${isLongerAgo('f.last', `least(interval '1 minute' * 2 ^ least(f.count - 1, 11), interval '1 day')`)})
  returning id`

/** Sweeps under way first, then the others in sending order. */
export function findOpenSweeps(database: Database): Promise<readonly Sweep[]> {
  return rowsOf<Sweep>(
    database.queryPrepared(
      'find_open_sweeps',
      `select s.partition, s.id, s.account_id, a.address, s.amount, s.nonce, s.signed_tx as signed_transaction,
              '0x' || encode(s.tx_hash, 'hex') as transaction_hash, s.state, s.created_at,
              (abs(extract(epoch from clock_timestamp() - s.changed_at)) * 1000)::bigint as age_ms
         from sweeps s join accounts a on a.partition = s.partition and a.id = s.account_id
        where s.state in ${openSweepStates}
        order by s.state = 'sent' desc, ${sweepOrder('s.amount', 's.partition', 's.account_id')}, s.created_at limit 100`,
      [],
    ),
  )
}

export async function markSweepSent(
  database: Database,
  sweep: Sweep,
  signedTransaction: string,
  transactionHash: string,
): Promise<void> {
  await database.query(
    `update sweeps set state = 'sent', signed_tx = decode($3, 'hex'), tx_hash = decode($4, 'hex'), changed_at = now()
      where partition = $1 and id = $2 and state in ${openSweepStates}`,
    [sweep.partition, sweep.id, signedTransaction.slice(2), transactionHash.slice(2)],
  )
}

/**
 * Anyone who sees a sweep's authorization can send it first. Its deposit then has a different transaction than ours, and would look
 * like an independent deposit. This handles a deposit that arrives after its sweep was found executed: the sweep of that amount takes
 * over its transaction. Only the display depends on it.
 */
export async function adoptTransaction(
  connection: Connection,
  deposit: { partition: number; accountId: string; transactionHash: string; amount: bigint },
): Promise<void> {
  const { partition, accountId, transactionHash, amount } = deposit
  await connection.query(
    `update sweeps set tx_hash = decode($4, 'hex')
      where partition = $1 and account_id = $2 and nonce = (
        select min(s.nonce) from sweeps s
         where s.partition = $1 and s.account_id = $2 and s.state = 'credited' and s.amount = $3
           and not exists (select from deposits x where x.partition = $1 and x.tx_hash = s.tx_hash)
           and not exists (select from deposits x where x.partition = $1 and x.id = s.id))`,
    [partition, accountId, amount, transactionHash.slice(2)],
  )
}

/** Like `adoptTransaction`, for a sweep that is found executed after its deposit arrived. */
async function adoptDeposit(connection: Connection, { partition, id }: Pick<Sweep, 'partition' | 'id'>): Promise<void> {
  await connection.query(
    `update sweeps s set tx_hash = coalesce((
        select d.tx_hash from deposits d
         where d.partition = $1 and d.account_id = s.account_id and d.amount = s.amount and d.created_at >= s.created_at
           and not exists (select from sweeps o where o.partition = $1 and o.account_id = s.account_id
                                                  and o.tx_hash = d.tx_hash)
         order by d.created_at limit 1), s.tx_hash)
      where s.partition = $1 and s.id = $2
        and not exists (select from deposits x where x.partition = $1 and x.tx_hash = s.tx_hash)`,
    [partition, id],
  )
}

/** A failed sweep leaves its money at the deposit address: the arrivals wait for the next sweep. */
export async function endSweep(
  database: Database,
  { partition, accountId, id }: Sweep,
  state: 'confirmed' | 'credited' | 'failed',
  reason?: string,
): Promise<void> {
  await database.transaction(async (connection) => {
    // First, because it may lock the account, and other transactions lock the account before the sweep.
    await writeEvent(connection, { partition, accountId }, 'deposit.updated', {})
    await connection.query(
      `update sweeps set state = $3, reason = $4, changed_at = now()
        where partition = $1 and id = $2 and state in ${openSweepStates}`,
      [partition, id, state, reason ?? null],
    )
    if (state === 'credited') await adoptDeposit(connection, { partition, id })
    if (state === 'failed') {
      await connection.query('update arrivals set sweep_id = null where partition = $1 and sweep_id = $2', [
        partition,
        id,
      ])
    }
  })
}
