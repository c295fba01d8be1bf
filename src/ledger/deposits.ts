import { createHash } from 'node:crypto'
import type { Database } from '../db/database.ts'
import { fromAtomic, type Usdc } from '../money/usdc.ts'

/** An account whose money comes over the chain. */
export type DepositAccount = { readonly partition: number; readonly id: string; readonly address: string }

export async function listDepositAccounts(database: Database): Promise<readonly DepositAccount[]> {
  return database.query<DepositAccount>(
    'select partition, id, address from accounts where address is not null order by partition, id',
  )
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
                   and w.state in ('requested', 'returning', 'returned', 'sent')))::bigint as most
       from accounts a where a.address is not null order by a.partition, a.id`,
  )
}

/** Accounts that have no deposit address yet. */
export async function findAccountsWithoutAddress(
  database: Database,
  rowsMax: number,
): Promise<readonly Omit<DepositAccount, 'address'>[]> {
  return database.query('select partition, id from accounts where address is null limit $1', [rowsMax])
}

/** An address is given once and never changed. Returns the one the account has now. */
export async function assignAddress(database: Database, account: DepositAccount): Promise<string> {
  const [row] = await database.query<{ address: string }>(
    'update accounts set address = coalesce(address, $3) where partition = $1 and id = $2 returning address',
    [account.partition, account.id, account.address],
  )
  return row!.address
}

export async function findDepositAddress(
  database: Database,
  { partition, id }: Pick<DepositAccount, 'partition' | 'id'>,
): Promise<string | undefined> {
  const [row] = await database.query<{ address: string | null }>(
    'select address from accounts where partition = $1 and id = $2',
    [partition, id],
  )
  return row?.address ?? undefined
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

export async function readCursor(database: Database, name: string): Promise<bigint | undefined> {
  const [row] = await database.query<{ block: bigint }>('select block from chain_cursors where name = $1', [name])
  return row?.block
}

/** Sets cursors that were never set to the last block that need not be read. */
export async function beginCursors(
  database: Database,
  names: readonly string[],
  block: bigint,
  { onlyWithoutAddresses = false }: { readonly onlyWithoutAddresses?: boolean } = {},
): Promise<void> {
  await database.query(
    `insert into chain_cursors (name, block)
     select n, $2 from unnest($1::text[]) as n
      where not $3 or not exists (select from accounts where address is not null)
     on conflict (name) do nothing`,
    [names, block, onlyWithoutAddresses],
  )
}

/** Never backwards: a node that lags cannot make a watcher read twice what it has read. */
export async function moveCursor(database: Database, name: string, block: bigint): Promise<void> {
  await database.query(
    `insert into chain_cursors (name, block) values ($1, $2)
     on conflict (name) do update set block = greatest(chain_cursors.block, excluded.block), changed_at = clock_timestamp()`,
    [name, block],
  )
}

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

/** Accounts with arrivals that no sweep has taken along. */
export async function findAccountsToSweep(database: Database, rowsMax: number): Promise<readonly DepositAccount[]> {
  return database.query<DepositAccount>(
    `select a.partition, a.id, a.address from accounts a
      where a.address is not null
        and exists (select from arrivals x where x.partition = a.partition and x.account_id = a.id and x.sweep_id is null)
        and not exists (select from sweeps s where s.partition = a.partition and s.account_id = a.id
                                               and s.state in ('planned', 'sent'))
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

/** Plans to bring an amount into the gateway. An account has one sweep under way at a time. */
export async function planSweep(
  database: Database,
  account: DepositAccount,
  id: string,
  amount: bigint,
): Promise<void> {
  await database.transaction(async (session) => {
    await session.query('select 1 from accounts where partition = $1 and id = $2 for no key update', [
      account.partition,
      account.id,
    ])
    await session.query(
      `insert into sweeps (partition, id, account_id, amount, nonce, state)
       select $1, $2, $3, $4, coalesce(max(s.nonce) + 1, 0), 'planned' from sweeps s where s.partition = $1 and s.account_id = $3
       having count(*) filter (where s.state in ('planned', 'sent')) = 0`,
      [account.partition, id, account.id, amount],
    )
    await session.query(
      `update arrivals set sweep_id = $2 where partition = $1 and account_id = $3 and sweep_id is null
          and exists (select from sweeps s where s.partition = $1 and s.id = $2)`,
      [account.partition, id, account.id],
    )
  })
}

export async function findOpenSweeps(database: Database): Promise<readonly Sweep[]> {
  const rows = await database.query<SweepRow>(
    `select s.partition, s.id, s.account_id, a.address, s.amount, s.nonce, s.signed_tx, encode(s.tx_hash, 'hex') as tx_hash,
            s.state, s.created_at
       from sweeps s join accounts a on a.partition = s.partition and a.id = s.account_id
      where s.state in ('planned', 'sent') order by s.created_at limit 100`,
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
      where partition = $1 and id = $2 and state in ('planned', 'sent')`,
    [sweep.partition, sweep.id, signedTransaction.slice(2), transactionHash.slice(2)],
  )
}

/** A sweep that failed leaves its money where it arrived: the arrivals wait for the next one. */
export async function endSweep(
  database: Database,
  { partition, id }: Sweep,
  state: 'confirmed' | 'credited' | 'failed',
  reason?: string,
): Promise<void> {
  await database.transaction(async (session) => {
    await session.query(
      `update sweeps set state = $3, reason = $4, changed_at = clock_timestamp()
        where partition = $1 and id = $2 and state in ('planned', 'sent')`,
      [partition, id, state, reason ?? null],
    )
    if (state === 'failed') {
      await session.query('update arrivals set sweep_id = null where partition = $1 and sweep_id = $2', [partition, id])
    }
  })
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
  return database.transaction(async (session) => {
    const [row] = await session.query<{ credited: boolean }>('select credit_deposit($1, $2, $3, $4, $5) as credited', [
      account.partition,
      id,
      account.id,
      amount,
      'chain',
    ])
    await session.query(
      `update deposits set tx_hash = decode($3, 'hex'), block = $4 where partition = $1 and id = $2`,
      [account.partition, id, transactionHash.slice(2), block],
    )
    await session.query(
      `update sweeps set state = 'credited', changed_at = clock_timestamp()
        where partition = $1 and account_id = $2 and tx_hash = decode($3, 'hex')`,
      [account.partition, account.id, transactionHash.slice(2)],
    )
    return row!.credited
  })
}

/** A log's own id: however it is reported, it is one deposit. */
function idOf(name: string): string {
  const hex = createHash('sha256').update(`penny deposit ${name}`).digest('hex')
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`
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

/** A copy for the pages of what the signer's own register says. */
export async function registerOwnerAddress(
  database: Database,
  { partition, id }: Pick<DepositAccount, 'partition' | 'id'>,
  owner: string,
  usableFrom: Date,
): Promise<void> {
  await database.query(
    'update accounts set owner_address = $3, owner_usable_from = $4 where partition = $1 and id = $2',
    [partition, id, owner, usableFrom],
  )
}
