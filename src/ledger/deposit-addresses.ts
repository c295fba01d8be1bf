import type { Database } from '../db/database.ts'
import { wakeHolder } from '../db/exclusive.ts'
import { listPartitions } from './accounts.ts'
import { WalletAccountError } from './withdrawals.ts'

/** An account with a deposit address on chain. */
export type DepositAccount = { readonly partition: number; readonly id: string; readonly address: string }

export async function listDepositAccounts(database: Database): Promise<readonly DepositAccount[]> {
  return database.query<DepositAccount>(
    'select partition, id, address from accounts where address is not null order by partition, id',
  )
}

/**
 * Accounts that need a deposit address: they requested one, or they have money from elsewhere and must settle. Accounts that only
 * signed up get none, because every address is watched on chain forever.
 */
export async function findAccountsWithoutAddress(
  database: Database,
  rowsMax: number,
): Promise<readonly Omit<DepositAccount, 'address'>[]> {
  return database.queryPrepared(
    'find_accounts_without_address',
    `select partition, id from accounts
      where address is null and wallet is null and (address_wanted_at is not null or deposited > 0) limit $1`,
    [rowsMax],
  )
}

/** Assigns an address once; it never changes. Returns the account's current address. */
export async function assignAddress(database: Database, account: DepositAccount): Promise<string> {
  const [row] = await database.query<{ address: string }>(
    `update accounts set address = coalesce(address, $3) where partition = $1 and id = $2 and wallet is null
     returning address`,
    [account.partition, account.id, account.address],
  )
  if (row === undefined) throw new WalletAccountError()
  return row.address
}

/** The account's address, or undefined until the settlement process has assigned it. For callers without access to the signer. */
export async function requestDepositAddress(
  database: Database,
  account: Pick<DepositAccount, 'partition' | 'id'>,
): Promise<string | undefined> {
  const wanted = await database.query(
    `update accounts set address_wanted_at = now()
      where partition = $1 and id = $2 and address is null and wallet is null and address_wanted_at is null returning 1`,
    [account.partition, account.id],
  )
  if (wanted.length > 0) await wakeHolder(database, 'settlement')
  return findDepositAddress(database, account)
}

/** After a restore: the backup may predate addresses that were given to customers, and money may be there. */
export async function requestAllDepositAddresses(database: Database): Promise<void> {
  for (const partition of await listPartitions(database))
    await database.query(
      `update accounts set address_wanted_at = now()
        where partition = $1 and address is null and wallet is null and address_wanted_at is null`,
      [partition],
    )
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
