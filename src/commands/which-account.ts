import type { Database } from '../db/database.ts'
import { type Account, findAccountsNamed, pageAccounts } from '../ledger/accounts.ts'
import { findDemoAccount } from '../ledger/demo-account.ts'
import { CommandError } from './command.ts'

/** The account with that id or name. Without either: the only account, or the sandbox's demo account. */
export async function whichAccount(database: Database, named: string | boolean | undefined): Promise<Account> {
  const isNamed = typeof named === 'string'
  const [only, another] = isNamed ? await findAccountsNamed(database, named) : await findUnnamed(database)
  if (only !== undefined && another === undefined) return only
  if (isNamed && only === undefined)
    throw new CommandError(`No account has the id or name "${named}". penny accounts lists all accounts.`)
  if (isNamed)
    throw new CommandError(
      `More than one account is named "${named}". Give the id; penny accounts lists all accounts.`,
      2,
    )
  throw new CommandError(
    'Which account? Add --account ID|NAME. penny accounts lists all accounts, penny accounts create creates one.',
    2,
  )
}

async function findUnnamed(database: Database): Promise<readonly Account[]> {
  const { value: newest = [] } = await pageAccounts(database).next()
  if (newest.length === 1) return newest
  const demo = await findDemoAccount(database)
  return demo === undefined ? [] : [demo]
}
