import { createAccount, listAccounts } from '../ledger/accounts.ts'
import { format } from '../money/usdc.ts'
import { printAccountKey } from './account-key.ts'
import { type Command, CommandError, printRows } from './command.ts'
import { withDatabase } from './with-database.ts'

export const accountsCommand: Command = {
  summary: 'list accounts with their balances, create one, or export its key',
  usage: `penny accounts                    all accounts, with what they can spend and what is held
  penny accounts create --name NAME an account with nothing in it
  penny accounts key ID --yes       its private key, from MASTER_KEY alone: for leaving without the service`,
  options: { name: { type: 'string' }, yes: { type: 'boolean' } },
  async run(invocation) {
    const { words, options, config, output } = invocation
    const [verb = 'list'] = words
    if (verb === 'key') return printAccountKey(invocation)
    const accounts = await withDatabase(config, async (database) => {
      if (verb === 'list') return listAccounts(database)
      if (verb !== 'create')
        throw new CommandError(`penny accounts does not know "${verb}": it lists, creates, or exports a key.`, 2)
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
