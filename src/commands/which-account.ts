import type { Database } from '../db/database.ts'
import { type Account, listAccounts } from '../ledger/accounts.ts'
import { CommandError } from './command.ts'

/** The account that was named by id or name; the only one, or the sandbox's, when none was. */
export async function whichAccount(database: Database, named: string | boolean | undefined): Promise<Account> {
  const accounts = await listAccounts(database)
  const found =
    typeof named === 'string'
      ? accounts.filter(({ id, name }) => id === named || name === named)
      : accounts.length === 1
        ? accounts
        : accounts.filter(({ name }) => name === 'Sandbox demo')
  if (found.length === 1) return found[0]!
  throw new CommandError(
    typeof named === 'string'
      ? `${found.length === 0 ? 'No' : 'More than one'} account is "${named}": penny accounts lists them; name one by its id.`
      : 'Say which account with --account ID: penny accounts lists them.',
    2,
  )
}
