import { createAccount, listAccounts } from '../ledger/accounts.ts'
import { format } from '../money/usdc.ts'
import { type Command, CommandError, printRows } from './command.ts'
import { withDatabase } from './with-database.ts'

export const accountsCommand: Command = {
  summary: 'list accounts with their balances, or create one',
  usage: `penny accounts                    all accounts, with what they can spend and what is held
  penny accounts create --name NAME an account with nothing in it`,
  options: { name: { type: 'string' } },
  async run({ words: [verb = 'list'], options, config, output }) {
    const accounts = await withDatabase(config, async (database) => {
      if (verb === 'list') return listAccounts(database)
      if (verb !== 'create') throw new CommandError(`penny accounts does not know "${verb}": it lists, or creates.`, 2)
      if (typeof options.name !== 'string' || options.name === '')
        throw new CommandError('An account needs --name NAME.', 2)
      return [await createAccount(database, options.name, config.ledgerPartitions)]
    })
    printRows(
      output,
      accounts.map((account) => ({
        id: account.id,
        name: account.name,
        spendable: format(account.spendable),
        gateway: format(account.gateway),
        credit: format(account.credit),
        held: format(account.held),
        created_at: account.createdAt.toISOString(),
      })),
    )
    return 0
  },
}
