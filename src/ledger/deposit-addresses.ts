import type { Database } from '../db/database.ts'

/** An account whose money comes over the chain. */
export type DepositAccount = { readonly partition: number; readonly id: string; readonly address: string }

export async function listDepositAccounts(database: Database): Promise<readonly DepositAccount[]> {
  return database.query<DepositAccount>(
    'select partition, id, address from accounts where address is not null order by partition, id',
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
