import type { Database } from '../db/database.ts'
import { type Account, findAccountsNamed, listAccounts } from '../ledger/accounts.ts'
import { findDemoAccount } from '../ledger/demo-account.ts'
import { CommandError } from './command.ts'

/** The account that was named by id or name; the only one, or the sandbox's, when none was. */
export async function whichAccount(database: Database, named: string | boolean | undefined): Promise<Account> {
  const isNamed = typeof named === 'string'
  const [only, another] = isNamed ? await findAccountsNamed(database, named) : await findUnnamed(database)
  if (only !== undefined && another === undefined) return only
  if (isNamed && only === undefined)
    throw new CommandError(`There is no account "${named}": penny accounts lists them.`)
  if (isNamed)
    throw new CommandError(`More than one account is "${named}": name one by its id; penny accounts lists them.`, 2)
  throw new CommandError(
    'Say which account with --account ID|NAME: penny accounts lists them, penny accounts create makes one.',
    2,
  )
}

async function findUnnamed(database: Database): Promise<readonly Account[]> {
  const accounts = await listAccounts(database)
  if (accounts.length === 1) return accounts
  const demo = await findDemoAccount(database)
  return demo === undefined ? [] : [demo]
}
