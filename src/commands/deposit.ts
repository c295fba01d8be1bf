import { findDepositAddress } from '../ledger/deposit-addresses.ts'
import { type ListedDeposit, listDeposits } from '../ledger/deposits.ts'
import { format } from '../money/usdc.ts'
import { type Address, checksummed } from '../signer/address.ts'
import { type Command, CommandError } from './command.ts'
import { printRows } from './table.ts'
import { whichAccount } from './which-account.ts'
import { withDatabase } from './with-database.ts'

const depositsMax = 100

export const depositCommand: Command = {
  summary: 'show where an account’s USDC is sent to, and what is on its way',
  usage: `penny deposit                     the deposit address, and the last deposits with their steps
      --account ID|NAME               of another one than the only one, or the sandbox's`,
  options: { account: { type: 'string' } },
  async run({ options, config, output }) {
    return withDatabase(config, async (database) => {
      const account = await whichAccount(database, options.account)
      const address = await findDepositAddress(database, account)
      if (address === undefined)
        throw new CommandError('The account has no deposit address yet: start the service first.')
      const owner = { partition: account.partition, accountId: account.id }
      const deposits = (await listDeposits(database, owner, { limit: depositsMax })).map(render)
      const shown = checksummed(address as Address)
      if (output.json) {
        output.write(`${JSON.stringify({ address: shown, min: format(config.sweepMin), deposits }, null, 2)}\n`)
        return 0
      }
      output.write(`Send USDC, and nothing else, to ${shown}\n`)
      output.write(`Amounts below ${format(config.sweepMin)} USDC wait until they add up.\n\n`)
      printRows(output, deposits)
      return 0
    })
  },
}

function render({ createdAt, amount, state, seenTxHash }: ListedDeposit) {
  return {
    seen_at: createdAt.toISOString(),
    amount: format(amount),
    state,
    tx_hash: seenTxHash === undefined ? null : `0x${seenTxHash.toString('hex')}`,
  }
}
