import type { Connection, Database } from '../db/database.ts'
import { fromAtomic, type Usdc } from '../money/usdc.ts'
import type { DepositAccount } from './deposit-addresses.ts'
import { openSweepStates } from './open-states.ts'

/** The reason of a sweep whose nonce was used by one that these books have forgotten. The next nonce is tried at once. */
export const nonceUsed = 'nonce used before'

/**
 * Accounts with arrivals of late that no sweep has taken along. What is older is too little, or was refused: it is found by its
 * balance once a minute, and must not be asked for again and again.
 */
export async function findAccountsToSweep(database: Database, rowsMax: number): Promise<readonly DepositAccount[]> {
  return database.query<DepositAccount>(
    `select a.partition, a.id, a.address from accounts a
      where a.address is not null
        and exists (select from arrivals x where x.partition = a.partition and x.account_id = a.id and x.sweep_id is null
                                                 and x.seen_at > now() - interval '10 minutes')
        and not exists (select from sweeps s where s.partition = a.partition and s.account_id = a.id
                                               and s.state in ${openSweepStates})
      limit $1`,
    [rowsMax],
  )
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
  readonly state: 'planned' | 'sent' | 'confirmed' | 'credited' | 'failed'
  readonly createdAt: Date
}

/**
 * Plans to bring an amount into the gateway. An account has one sweep under way at a time. After one that failed it waits for a
 * minute, after each more in a row twice as long, up to a day: a reverted transaction costs gas, and what refuses one sweep of
 * the account, as a token's blocklist does, mostly refuses the next.
 */
export async function planSweep(
  database: Database,
  account: DepositAccount,
  id: string,
  amount: bigint,
): Promise<void> {
  await database.transaction(async (connection) => {
    await connection.query('select 1 from accounts where partition = $1 and id = $2 for no key update', [
      account.partition,
      account.id,
    ])
    await connection.query(insertSweep, [account.partition, id, account.id, amount, nonceUsed])
    await connection.query(
      `update arrivals set sweep_id = $2 where partition = $1 and account_id = $3 and sweep_id is null
          and exists (select from sweeps s where s.partition = $1 and s.id = $2)`,
      [account.partition, id, account.id],
    )
  })
}

const insertSweep = `
  with own as (select nonce, state, reason, changed_at from sweeps where partition = $1 and account_id = $3),
       failed as (select count(*) as count, max(changed_at) as last from own
                   where state = 'failed' and reason is distinct from $5
                     and nonce > coalesce((select max(nonce) from own where state in ('confirmed', 'credited')), -1))
  insert into sweeps (partition, id, account_id, amount, nonce, state)
  select $1, $2, $3, $4, coalesce((select max(nonce) + 1 from own), 0), 'planned' from failed f
   where not exists (select from own where state in ${openSweepStates})
     and (f.count = 0
          or f.last + least(interval '1 minute' * 2 ^ least(f.count - 1, 11), interval '1 day') <= clock_timestamp())`

export async function findOpenSweeps(database: Database): Promise<readonly Sweep[]> {
  const rows = await database.query<SweepRow>(
    `select s.partition, s.id, s.account_id, a.address, s.amount, s.nonce, s.signed_tx, encode(s.tx_hash, 'hex') as tx_hash,
            s.state, s.created_at
       from sweeps s join accounts a on a.partition = s.partition and a.id = s.account_id
      where s.state in ${openSweepStates} order by s.created_at limit 100`,
  )
  return rows.map((row) => ({
    partition: row.partition,
    id: row.id,
    accountId: row.account_id,
    address: row.address,
    amount: fromAtomic(row.amount),
    nonce: row.nonce,
    signedTransaction: row.signed_tx ?? undefined,
    transactionHash: row.tx_hash === null ? undefined : `0x${row.tx_hash}`,
    state: row.state,
    createdAt: row.created_at,
  }))
}

export async function markSweepSent(
  database: Database,
  sweep: Sweep,
  signedTransaction: string,
  transactionHash: string,
): Promise<void> {
  await database.query(
    `update sweeps set state = 'sent', signed_tx = decode($3, 'hex'), tx_hash = decode($4, 'hex'), changed_at = clock_timestamp()
      where partition = $1 and id = $2 and state in ${openSweepStates}`,
    [sweep.partition, sweep.id, signedTransaction.slice(2), transactionHash.slice(2)],
  )
}

/**
 * Whoever sees a sweep's authorization may send it first. Its deposit then has another transaction than the one we made, and would
 * be taken for money that came by itself. Here the deposit has come: the sweep of that amount that was found done by somebody else
 * takes its transaction over. Nothing but what is shown depends on it.
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

/** The other way round: the deposit was there when the sweep was found done. */
async function adoptDeposit(connection: Connection, { partition, id }: Pick<Sweep, 'partition' | 'id'>): Promise<void> {
  await connection.query(
    `update sweeps s set tx_hash = coalesce((
        select d.tx_hash from deposits d
         where d.partition = s.partition and d.account_id = s.account_id and d.amount = s.amount and d.created_at >= s.created_at
           and not exists (select from sweeps o where o.partition = s.partition and o.account_id = s.account_id
                                                  and o.tx_hash = d.tx_hash)
         order by d.created_at limit 1), s.tx_hash)
      where s.partition = $1 and s.id = $2
        and not exists (select from deposits x where x.partition = $1 and x.tx_hash = s.tx_hash)`,
    [partition, id],
  )
}

/** A sweep that failed leaves its money where it arrived: the arrivals wait for the next one. */
export async function endSweep(
  database: Database,
  { partition, id }: Sweep,
  state: 'confirmed' | 'credited' | 'failed',
  reason?: string,
): Promise<void> {
  await database.transaction(async (connection) => {
    await connection.query(
      `update sweeps set state = $3, reason = $4, changed_at = clock_timestamp()
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

type SweepRow = {
  readonly partition: number
  readonly id: string
  readonly account_id: string
  readonly address: string
  readonly amount: bigint
  readonly nonce: bigint
  readonly signed_tx: Buffer | null
  readonly tx_hash: string | null
  readonly state: Sweep['state']
  readonly created_at: Date
}
