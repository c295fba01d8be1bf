import { randomInt, randomUUID } from 'node:crypto'
import { operatorActor, writeAccountLog } from '../db/account-log.ts'
import { readClock } from '../db/clock.ts'
import type { Connection, Database } from '../db/database.ts'
import { lockAccount } from '../db/lock-account.ts'
import { rowOf, rowsOf } from '../db/rows.ts'
import { writeEvent } from '../db/write-event.ts'
import type { Usdc } from '../money/usdc.ts'

export type Account = {
  readonly partition: number
  readonly id: string
  readonly name: string
  readonly gateway: Usdc
  readonly credit: Usdc
  readonly held: Usdc
  readonly extended: Usdc
  /** Lifetime total. */
  readonly deposited: Usdc
  /** Charges that the operator refunded; lifetime total. */
  readonly givenBack: Usdc
  /** Why the account is suspended; undefined when it is not. */
  readonly suspendedReason: string | undefined
  /** The largest quote of a new request: `gateway + credit - extended`. */
  readonly spendable: Usdc
  /** The deposit address; undefined until one was requested. */
  readonly address: string | undefined
  /** The withdrawal address, and from when it may be used. */
  readonly ownerAddress: string | undefined
  readonly ownerUsableFrom: Date | undefined
  /** Wallet accounts only, which pay over x402. */
  readonly wallet: string | undefined
  /** Whether `ownerUsableFrom` has passed. */
  readonly isOwnerUsable: boolean
  readonly createdAt: Date
  /** When its holder closed it; undefined while it is open. */
  readonly closedAt: Date | undefined
}

/** Opens an empty account. A random partition spreads accounts evenly without counting them. */
export async function createAccount(
  connection: Connection,
  name: string,
  partitions: number,
  id: string = randomUUID(),
): Promise<Account> {
  const row = await rowOf<Account>(
    connection.query(
      `insert into accounts (partition, id, name) values ($1, $2, $3) returning ${storedColumns}, false as is_owner_usable`,
      [randomInt(partitions), id, name],
    ),
  )
  return row!
}

/**
 * The partitions that have accounts. Jobs that write to all accounts go through them one by one, because a write names its
 * partition.
 */
export async function listPartitions(database: Connection): Promise<readonly number[]> {
  const rows = await database.query<{ partition: number }>('select distinct partition from accounts order by partition')
  return rows.map(({ partition }) => partition)
}

export const accountsPerPage = 1_000

/** All accounts, newest first, page by page. */
export async function* pageAccounts(database: Database): AsyncGenerator<readonly Account[]> {
  let last: PagedAccount | undefined
  do {
    const rows: readonly PagedAccount[] = await rowsOf<PagedAccount>(
      database.query(
        `select ${columns}, to_json(created_at) #>> '{}' as created_text from accounts
        where $1::timestamptz is null or (created_at, id) < ($1, $2)
        order by created_at desc, id desc limit ${accountsPerPage}`,
        [last?.createdText ?? null, last?.id ?? null],
      ),
    )
    if (rows.length > 0) yield rows
    last = rows.length < accountsPerPage ? undefined : rows.at(-1)
  } while (last !== undefined)
}

/** With microseconds: a rounded cursor would repeat or skip accounts. */
type PagedAccount = Account & { readonly createdText: string }

/** Finds accounts by id, name, or the address of the wallet that pays over x402. Names need not be unique; two results show that. */
export async function findAccountsNamed(database: Database, idOrName: string): Promise<readonly Account[]> {
  return rowsOf<Account>(
    database.query(
      `select ${columns} from accounts where id::text = $1 or name = $1 or wallet = lower($1) order by created_at, id limit 2`,
      [idOrName],
    ),
  )
}

export async function findAccount(database: Connection, partition: number, id: string): Promise<Account | undefined> {
  return rowOf<Account>(
    database.query(`select ${columns} from accounts where partition = $1 and id = $2`, [partition, id]),
  )
}

/** Refuses the account's requests until it is resumed. Calling it again changes the reason. For an operator, in the account's log. */
export async function suspendAccount(database: Database, { partition, id }: AccountId, reason: string): Promise<void> {
  const account = { partition, accountId: id }
  await database.transaction(async (connection) => {
    await lockAccount(connection, account)
    await connection.query(
      `update accounts set suspended_at = coalesce(suspended_at, $4), suspended_reason = $3
        where partition = $1 and id = $2`,
      [partition, id, reason, await readClock(connection)],
    )
    await writeAccountLog(connection, account, { event: 'account_suspended', actor: operatorActor })
    await writeEvent(connection, account, 'account.changed', {})
  })
}

/** For an operator, in the account's log. */
export async function resumeAccount(database: Database, { partition, id }: AccountId): Promise<void> {
  const account = { partition, accountId: id }
  await database.transaction(async (connection) => {
    await lockAccount(connection, account)
    const resumed = await connection.query(
      `update accounts set suspended_at = null, suspended_reason = null
        where partition = $1 and id = $2 and suspended_at is not null returning 1`,
      [partition, id],
    )
    if (resumed.length === 0) return
    await writeAccountLog(connection, account, { event: 'account_resumed', actor: operatorActor })
    await writeEvent(connection, account, 'account.changed', {})
  })
}

type AccountId = Pick<Account, 'partition' | 'id'>

/** Copies the owner address from the signer's register, for display. */
export async function registerOwnerAddress(
  connection: Connection,
  { partition, id }: AccountId,
  owner: string,
  usableFrom: Date,
): Promise<void> {
  await connection.query(
    'update accounts set owner_address = $3, owner_usable_from = $4 where partition = $1 and id = $2',
    [partition, id, owner, usableFrom],
  )
}

/** Sets, for all nodes, how much one account may have charged and not yet settled. */
export async function setUnsettledCap(database: Database, cap: Usdc): Promise<void> {
  // Read first: on a cluster every worker has a copy, and a write needs all of them, even one of no row.
  const different = await database.query('select from ledger_state where unsettled_cap <> $1', [cap])
  if (different.length > 0) await database.query('update ledger_state set unsettled_cap = $1', [cap])
}

/** Does nothing for a closed account: it must not get a name again. */
export async function renameAccount(
  connection: Connection,
  partition: number,
  id: string,
  name: string,
): Promise<void> {
  await connection.query('update accounts set name = $3 where partition = $1 and id = $2 and closed_at is null', [
    partition,
    id,
    name,
  ])
}

const storedColumns = `partition, id, name, gateway, credit, held, extended, gateway + credit - extended as spendable, deposited, given_back, suspended_reason, address,
  owner_address, owner_usable_from, wallet, created_at, closed_at`
const columns = `${storedColumns}, owner_usable_from is not null and owner_usable_from <= now() as is_owner_usable`
