import type { AccountRef } from '../db/account-ref.ts'
import type { Connection, Database } from '../db/database.ts'
import { derivedId } from '../db/derived-id.ts'
import { rowsOf } from '../db/rows.ts'
import { writeEvent } from '../db/write-event.ts'
import { fromAtomic, type Usdc } from '../money/usdc.ts'
import { readCursor } from './chain-cursors.ts'
import type { DepositAccount } from './deposit-addresses.ts'
import { type DepositState, openSweepStates, openTransferStates, withdrawalKinds } from './states.ts'
import { adoptTransaction, smallSweepWait } from './sweeps.ts'
import { pageValues, type TransferPage } from './transfer-page.ts'

export type Arrival = {
  readonly account: DepositAccount
  readonly block: bigint
  readonly logIndex: number
  readonly transactionHash: string
  readonly sender: string
  readonly amount: bigint
}

/** Records USDC that reached a deposit address. Idempotent per log. */
export async function recordArrival(database: Database, arrival: Arrival): Promise<void> {
  const { account, block, logIndex, transactionHash, sender, amount } = arrival
  await database.transaction(async (connection) => {
    const rows = await connection.query(
      `insert into arrivals (partition, account_id, block, log_index, tx_hash, sender, amount)
       values ($1, $2, $3, $4, decode($5, 'hex'), $6, $7) on conflict do nothing returning 1`,
      [account.partition, account.id, block, logIndex, transactionHash.slice(2), sender, amount],
    )
    if (rows.length === 0) return
    await writeEvent(connection, { partition: account.partition, accountId: account.id }, 'deposit.seen', {
      amount_atomic: amount.toString(),
      sender,
      tx_hash: transactionHash,
    })
  })
}

export type Deposit = {
  readonly partition: number
  /** Chosen by the caller; makes the deposit idempotent. */
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

/** Credits a deposit that the gateway's contract has booked, once per log. Returns false when it was known. */
export async function creditGatewayDeposit(database: Database, deposit: GatewayDeposit): Promise<boolean> {
  const { account, chainId, block, logIndex, transactionHash, amount } = deposit
  // One log is one deposit, however it is reported.
  const id = derivedId(`penny deposit ${chainId}:${block}:${logIndex}`)
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
      `update sweeps set state = 'credited', changed_at = now()
        where partition = $1 and account_id = $2 and tx_hash = decode($3, 'hex') returning id`,
      [partition, accountId, transactionHash.slice(2)],
    )
    if (own.length === 0 && isNews)
      await adoptTransaction(connection, { partition, accountId, transactionHash, amount })
    return isNews
  })
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
 * The most that the gateway's contract can hold for each account according to the ledger: its balance plus everything on its way
 * out. Any excess is a deposit that the ledger does not know.
 */
export async function listMostOnChain(
  database: Database,
): Promise<readonly (DepositAccount & { readonly most: bigint })[]> {
  return database.query(
    `select a.partition, a.id, a.address,
            (a.gateway + a.credit + a.held + a.charged - a.given_back - a.paid
             -- A payment from the seller that is under way may have arrived.
             + greatest(0, a.paid - a.covered)
             + (select coalesce(sum(w.amount), 0) from transfers w
                 where w.partition = a.partition and w.account_id = a.id
                   and w.kind in ${withdrawalKinds} and w.state in ${openTransferStates}))::bigint as most
       from accounts a where a.address is not null order by a.partition, a.id`,
  )
}

/** The first block with a credited deposit of any account; 0 while there is none. */
export async function findFirstCreditedBlock(database: Database): Promise<bigint> {
  const [row] = await database.query<{ block: bigint | null }>('select min(block) as block from deposits')
  return row!.block ?? 0n
}

/** The lowest block that was searched for deposits missing from the ledger. */
export async function readLookBack(database: Database, account: DepositAccount): Promise<bigint | undefined> {
  return readCursor(database, lookBackOf(account))
}

/** Unlike other cursors, this one moves backwards. */
export async function noteLookBack(database: Database, account: DepositAccount, block: bigint): Promise<void> {
  await database.query(
    `insert into chain_cursors (name, block) values ($1, $2)
     on conflict (name) do update set block = excluded.block, changed_at = now()`,
    [lookBackOf(account), block],
  )
}

/** Deletes the look-back cursors of all accounts but these: their balances are explained. */
export async function deleteLookBacks(database: Database, open: readonly DepositAccount[]): Promise<void> {
  await database.query('delete from chain_cursors where starts_with(name, $1) and name <> all ($2)', [
    lookBack,
    open.map(lookBackOf),
  ])
}

const lookBack = 'look back '

function lookBackOf({ id }: DepositAccount): string {
  return `${lookBack}${id}`
}

/** A deposit on its way into an account, or credited. */
export type ListedDeposit = {
  readonly id: string
  readonly amount: Usdc
  readonly source: string
  readonly sender: string | undefined
  readonly state: DepositState
  readonly reason: string | undefined
  /** A small amount is not swept before this. */
  readonly waitsUntil: Date | undefined
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
 * Arrivals on chain with their status, and credits from elsewhere, newest first. One sweep can bring in several arrivals; its
 * credit is matched by its transaction.
 */
export function listDeposits(
  database: Database,
  { partition, accountId }: AccountRef,
  page: TransferPage,
): Promise<readonly ListedDeposit[]> {
  return rowsOf<ListedDeposit>(
    database.query(
      `select * from (
         select v.block::text || '-' || v.log_index as id, v.amount, 'chain' as source, v.sender,
                case when s.id is null then 'seen' when s.state in ${openSweepStates} then 'sweeping' else s.state end as state,
                s.reason, case when v.sweep_id is null then ${smallSweepWait('v.partition', 'v.account_id')} end as waits_until, v.seen_at, v.block as seen_block, v.tx_hash as seen_tx_hash,
                case when s.state in ('confirmed', 'credited') then s.changed_at end as swept_at, s.tx_hash as sweep_tx_hash,
                d.created_at as credited_at, d.block as credited_block, v.seen_at as created_at
           from arrivals v
           left join sweeps s on s.partition = v.partition and s.id = v.sweep_id
           left join deposits d on d.partition = v.partition and d.account_id = v.account_id and (d.id = s.id or d.tx_hash = s.tx_hash)
          where v.partition = $1 and v.account_id = $2
         union all
         select d.id::text, d.amount, d.source, null, 'credited', null, null, null, null, d.tx_hash, null, null,
                d.created_at, d.block, d.created_at
           from deposits d
          where d.partition = $1 and d.account_id = $2
            and not exists (select from sweeps s where s.partition = d.partition and s.account_id = d.account_id
                             and (s.id = d.id or s.tx_hash = d.tx_hash))) t
        where $3::timestamptz is null or (date_trunc('milliseconds', t.created_at), t.id) < ($3, $4)
        order by date_trunc('milliseconds', t.created_at) desc, t.id desc limit $5`,
      [partition, accountId, ...pageValues(page)],
    ),
  )
}
