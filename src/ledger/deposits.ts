import { createHash } from 'node:crypto'
import type { AccountRef } from '../account-ref.ts'
import type { Connection, Database } from '../db/database.ts'
import { fromAtomic, type Usdc } from '../money/usdc.ts'
import { readCursor } from './chain-cursors.ts'
import type { DepositAccount } from './deposit-addresses.ts'
import { openSweepStates, openWithdrawalStates } from './open-states.ts'
import { adoptTransaction } from './sweeps.ts'
import { pageValues, type TransferPage } from './transfer-page.ts'

export type Arrival = {
  readonly account: DepositAccount
  readonly block: bigint
  readonly logIndex: number
  readonly transactionHash: string
  readonly sender: string
  readonly amount: bigint
}

/** Notes USDC that reached a deposit address. Seeing the same log again changes nothing. */
export async function recordArrival(database: Database, arrival: Arrival): Promise<void> {
  const { account, block, logIndex, transactionHash, sender, amount } = arrival
  await database.query(
    `insert into arrivals (partition, account_id, block, log_index, tx_hash, sender, amount)
     values ($1, $2, $3, $4, decode($5, 'hex'), $6, $7) on conflict do nothing`,
    [account.partition, account.id, block, logIndex, transactionHash.slice(2), sender, amount],
  )
}

export type Deposit = {
  readonly partition: number
  /** Chosen by the caller: reporting the same deposit again credits nothing. */
  readonly id: string
  readonly accountId: string
  readonly amount: Usdc
  readonly source: string
}

/** Credits a deposit once. False when it was credited before. */
export async function creditDeposit(connection: Connection, deposit: Deposit): Promise<boolean> {
  const [row] = await connection.query<{ credited: boolean }>('select credit_deposit($1, $2, $3, $4, $5) as credited', [
    deposit.partition,
    deposit.id,
    deposit.accountId,
    deposit.amount,
    deposit.source,
  ])
  return row!.credited
}

export type GatewayDeposit = {
  readonly account: DepositAccount
  readonly chainId: number
  readonly block: bigint
  readonly logIndex: number
  readonly transactionHash: string
  readonly amount: bigint
}

/** Credits what the gateway's contract has booked for the account; each log once. Says whether it was news. */
export async function creditGatewayDeposit(database: Database, deposit: GatewayDeposit): Promise<boolean> {
  const { account, chainId, block, logIndex, transactionHash, amount } = deposit
  const id = idOf(`${chainId}:${block}:${logIndex}`)
  return database.transaction(async (connection) => {
    const { partition, id: accountId } = account
    const isNews = await creditDeposit(connection, {
      partition,
      id,
      accountId,
      amount: fromAtomic(amount),
      source: 'chain',
    })
    await connection.query(
      `update deposits set tx_hash = decode($3, 'hex'), block = $4 where partition = $1 and id = $2`,
      [partition, id, transactionHash.slice(2), block],
    )
    const own = await connection.query(
      `update sweeps set state = 'credited', changed_at = clock_timestamp()
        where partition = $1 and account_id = $2 and tx_hash = decode($3, 'hex') returning id`,
      [partition, accountId, transactionHash.slice(2)],
    )
    if (own.length === 0 && isNews)
      await adoptTransaction(connection, { partition, accountId, transactionHash, amount })
    return isNews
  })
}

/** A log's own id: however it is reported, it is one deposit. */
function idOf(name: string): string {
  const hex = createHash('sha256').update(`penny deposit ${name}`).digest('hex')
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`
}

/** Whether anything was ever sent to the account's address, credited or not. */
export async function hasEverArrived(
  database: Database,
  { partition, id }: Pick<DepositAccount, 'partition' | 'id'>,
): Promise<boolean> {
  const rows = await database.query(
    `select 1 from arrivals where partition = $1 and account_id = $2
     union all select 1 from deposits where partition = $1 and account_id = $2 limit 1`,
    [partition, id],
  )
  return rows.length > 0
}

export async function hasDeposit(
  database: Database,
  { partition, id }: Pick<DepositAccount, 'partition' | 'id'>,
): Promise<boolean> {
  const rows = await database.query('select 1 from deposits where partition = $1 and account_id = $2 limit 1', [
    partition,
    id,
  ])
  return rows.length > 0
}

/**
 * The most that the gateway's contract can have for each account by the books: its balance, and all that is on its way out
 * of it. More than that can only be a deposit of which the books do not know.
 */
export async function listMostOnChain(
  database: Database,
): Promise<readonly (DepositAccount & { readonly most: bigint })[]> {
  return database.query(
    `select a.partition, a.id, a.address,
            (a.gateway + a.unsettled
             + (select coalesce(sum(r.authorized), 0) from requests r
                 where r.partition = a.partition and r.account_id = a.id and r.status = 'held')
             + (select coalesce(sum(w.amount), 0) from withdrawals w
                 where w.partition = a.partition and w.account_id = a.id
                   and w.state in ${openWithdrawalStates}))::bigint as most
       from accounts a where a.address is not null order by a.partition, a.id`,
  )
}

/** Before this block no deposit was credited to anybody: 0 while none was. */
export async function findFirstCreditedBlock(database: Database): Promise<bigint> {
  const [row] = await database.query<{ block: bigint | null }>('select min(block) as block from deposits')
  return row!.block ?? 0n
}

/** The first block down to which the logs were searched for what an account has beyond its books. */
export async function readLookBack(database: Database, account: DepositAccount): Promise<bigint | undefined> {
  return readCursor(database, lookBackOf(account))
}

/** Unlike other cursors it goes backwards. */
export async function noteLookBack(database: Database, account: DepositAccount, block: bigint): Promise<void> {
  await database.query(
    `insert into chain_cursors (name, block) values ($1, $2)
     on conflict (name) do update set block = excluded.block, changed_at = clock_timestamp()`,
    [lookBackOf(account), block],
  )
}

/** Of all accounts but these: theirs is explained. */
export async function forgetLookBacks(database: Database, open: readonly DepositAccount[]): Promise<void> {
  await database.query('delete from chain_cursors where starts_with(name, $1) and name <> all ($2)', [
    lookBack,
    open.map(lookBackOf),
  ])
}

const lookBack = 'look back '

function lookBackOf({ id }: DepositAccount): string {
  return `${lookBack}${id}`
}

/** Money on its way into an account, or arrived. */
export type ListedDeposit = {
  readonly id: string
  readonly amount: Usdc
  readonly source: string
  readonly sender: string | undefined
  readonly state: 'seen' | 'sweeping' | 'confirmed' | 'credited' | 'failed'
  readonly reason: string | undefined
  readonly seenAt: Date | undefined
  readonly seenBlock: bigint | undefined
  readonly seenTxHash: Buffer | undefined
  readonly sweptAt: Date | undefined
  readonly sweepTxHash: Buffer | undefined
  readonly creditedAt: Date | undefined
  readonly creditedBlock: bigint | undefined
  readonly createdAt: Date
}

/**
 * Arrivals on chain with what became of them, and credits that came another way, newest first. A sweep brings several
 * arrivals in at once; its credit is known by its transaction.
 */
export async function listDeposits(
  database: Database,
  { partition, accountId }: AccountRef,
  page: TransferPage,
): Promise<readonly ListedDeposit[]> {
  const rows = await database.query<DepositRow>(
    `select * from (
       select v.block::text || '-' || v.log_index as id, v.amount, 'chain' as source, v.sender,
              case when s.id is null then 'seen' when s.state in ${openSweepStates} then 'sweeping' else s.state end as state,
              s.reason, v.seen_at, v.block as seen_block, v.tx_hash as seen_tx_hash,
              case when s.state in ('confirmed', 'credited') then s.changed_at end as swept_at, s.tx_hash as sweep_tx_hash,
              d.created_at as credited_at, d.block as credited_block, v.seen_at as created_at
         from arrivals v
         left join sweeps s on s.partition = v.partition and s.id = v.sweep_id
         left join deposits d on d.partition = v.partition and d.account_id = v.account_id and (d.id = s.id or d.tx_hash = s.tx_hash)
        where v.partition = $1 and v.account_id = $2
       union all
       select d.id::text, d.amount, d.source, null, 'credited', null, null, null, d.tx_hash, null, null,
              d.created_at, d.block, d.created_at
         from deposits d
        where d.partition = $1 and d.account_id = $2
          and not exists (select from sweeps s where s.partition = d.partition and s.account_id = d.account_id
                           and (s.id = d.id or s.tx_hash = d.tx_hash))) t
      where $3::timestamptz is null or (date_trunc('milliseconds', t.created_at), t.id) < ($3, $4)
      order by date_trunc('milliseconds', t.created_at) desc, t.id desc limit $5`,
    [partition, accountId, ...pageValues(page)],
  )
  return rows.map((row) => ({
    id: row.id,
    amount: fromAtomic(row.amount),
    source: row.source,
    sender: row.sender ?? undefined,
    state: row.state,
    reason: row.reason ?? undefined,
    seenAt: row.seen_at ?? undefined,
    seenBlock: row.seen_block ?? undefined,
    seenTxHash: row.seen_tx_hash ?? undefined,
    sweptAt: row.swept_at ?? undefined,
    sweepTxHash: row.sweep_tx_hash ?? undefined,
    creditedAt: row.credited_at ?? undefined,
    creditedBlock: row.credited_block ?? undefined,
    createdAt: row.created_at,
  }))
}

type DepositRow = {
  readonly id: string
  readonly amount: bigint
  readonly source: string
  readonly sender: string | null
  readonly state: ListedDeposit['state']
  readonly reason: string | null
  readonly seen_at: Date | null
  readonly seen_block: bigint | null
  readonly seen_tx_hash: Buffer | null
  readonly swept_at: Date | null
  readonly sweep_tx_hash: Buffer | null
  readonly credited_at: Date | null
  readonly credited_block: bigint | null
  readonly created_at: Date
}
