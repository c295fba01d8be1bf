import { randomInt, randomUUID } from 'node:crypto'
import type { Connection, Database } from '../db/database.ts'
import { fromAtomic, type Usdc } from '../money/usdc.ts'

export type Account = {
  readonly partition: number
  readonly id: string
  readonly name: string
  readonly gateway: Usdc
  readonly credit: Usdc
  readonly held: Usdc
  readonly extended: Usdc
  /** Over the account's life. */
  readonly deposited: Usdc
  /** Charges that the operator gave back, over the account's life. */
  readonly adjusted: Usdc
  /** Why no request of it is taken; undefined when it is not suspended. */
  readonly suspendedReason: string | undefined
  /** What a new request may be quoted: `gateway + credit - extended`. */
  readonly spendable: Usdc
  /** Where deposits to it go; undefined until it was asked for. */
  readonly address: string | undefined
  /** Where its withdrawals go, and from when on. */
  readonly ownerAddress: string | undefined
  readonly ownerUsableFrom: Date | undefined
  /** Whether that instant has come. */
  readonly isOwnerUsable: boolean
  readonly createdAt: Date
  /** When its holder closed it; undefined while it is open. */
  readonly closedAt: Date | undefined
}

/** Opens an account with nothing in it. Its partition is drawn by lot, which spreads accounts evenly without counting them. */
export async function createAccount(
  connection: Connection,
  name: string,
  partitions: number,
  id: string = randomUUID(),
): Promise<Account> {
  const [row] = await connection.query<AccountRow>(
    `insert into accounts (partition, id, name) values ($1, $2, $3) returning ${columns}`,
    [randomInt(partitions), id, name],
  )
  return readAccount(row!)
}

export async function listAccounts(database: Database): Promise<readonly Account[]> {
  const rows = await database.query<AccountRow>(
    `select ${columns} from accounts order by created_at, id limit 1000`,
    [],
  )
  return rows.map(readAccount)
}

/** By id or name. Names need not be unique: two are enough to know. */
export async function findAccountsNamed(database: Database, idOrName: string): Promise<readonly Account[]> {
  const rows = await database.query<AccountRow>(
    `select ${columns} from accounts where id::text = $1 or name = $1 order by created_at, id limit 2`,
    [idOrName],
  )
  return rows.map(readAccount)
}

export async function findAccount(database: Database, partition: number, id: string): Promise<Account | undefined> {
  const [row] = await database.query<AccountRow>(`select ${columns} from accounts where partition = $1 and id = $2`, [
    partition,
    id,
  ])
  return row === undefined ? undefined : readAccount(row)
}

/** Takes no more requests of an account until it is resumed; with a reason again: the reason is changed. */
export async function suspendAccount(database: Database, { partition, id }: AccountId, reason: string): Promise<void> {
  await database.query(
    `update accounts set suspended_at = coalesce(suspended_at, clock_timestamp()), suspended_reason = $3
      where partition = $1 and id = $2`,
    [partition, id, reason],
  )
}

export async function resumeAccount(database: Database, { partition, id }: AccountId): Promise<void> {
  await database.query(
    'update accounts set suspended_at = null, suspended_reason = null where partition = $1 and id = $2',
    [partition, id],
  )
}

type AccountId = Pick<Account, 'partition' | 'id'>

/** A copy for the pages of what the signer's own register says. */
export async function registerOwnerAddress(
  database: Database,
  { partition, id }: AccountId,
  owner: string,
  usableFrom: Date,
): Promise<void> {
  await database.query(
    'update accounts set owner_address = $3, owner_usable_from = $4 where partition = $1 and id = $2',
    [partition, id, owner, usableFrom],
  )
}

/** How much of one account may be charged and not yet settled, for all nodes. */
export async function setUnsettledCap(database: Database, cap: Usdc): Promise<void> {
  await database.query('update ledger_state set unsettled_cap = $1 where unsettled_cap <> $1', [cap])
}

/** A closed account has no name of its own any more, whoever asked before it was closed. */
export async function renameAccount(database: Database, partition: number, id: string, name: string): Promise<void> {
  await database.query('update accounts set name = $3 where partition = $1 and id = $2 and closed_at is null', [
    partition,
    id,
    name,
  ])
}

const columns = `partition, id, name, gateway, credit, held, extended, deposited, adjusted, suspended_reason, address,
  owner_address, owner_usable_from,
  coalesce(owner_usable_from <= clock_timestamp(), false) as is_owner_usable, created_at, closed_at`

type AccountRow = {
  readonly partition: number
  readonly id: string
  readonly name: string
  readonly gateway: bigint
  readonly credit: bigint
  readonly held: bigint
  readonly extended: bigint
  readonly deposited: bigint
  readonly address: string | null
  readonly owner_address: string | null
  readonly owner_usable_from: Date | null
  readonly is_owner_usable: boolean
  readonly adjusted: bigint
  readonly suspended_reason: string | null
  readonly created_at: Date
  readonly closed_at: Date | null
}

function readAccount(row: AccountRow): Account {
  return {
    partition: row.partition,
    id: row.id,
    name: row.name,
    gateway: fromAtomic(row.gateway),
    credit: fromAtomic(row.credit),
    held: fromAtomic(row.held),
    extended: fromAtomic(row.extended),
    deposited: fromAtomic(row.deposited),
    adjusted: fromAtomic(row.adjusted),
    suspendedReason: row.suspended_reason ?? undefined,
    spendable: fromAtomic(row.gateway + row.credit - row.extended),
    address: row.address ?? undefined,
    ownerAddress: row.owner_address ?? undefined,
    ownerUsableFrom: row.owner_usable_from ?? undefined,
    isOwnerUsable: row.is_owner_usable,
    createdAt: row.created_at,
    closedAt: row.closed_at ?? undefined,
  }
}
