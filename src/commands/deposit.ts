import { type ListedDeposit, listDeposits } from '../ledger/deposits.ts'
import { format } from '../money/usdc.ts'
import { type Address, checksummed } from '../signer/address.ts'
import type { Command } from './command.ts'
import { findLogin } from './login-file.ts'
import { printRemoteDeposit } from './remote.ts'
import { printRows } from './table.ts'
import { untilAddressed } from './until-addressed.ts'
import { whichAccount } from './which-account.ts'
import { withDatabase } from './with-database.ts'

const depositsMax = 100

export const depositCommand: Command = {
  usage: [
    ['penny deposit', 'Show the deposit address and the latest deposits with their steps'],
    ['--account ID|NAME', 'Account to show'],
  ],
  options: { account: { type: 'string' } },
  async run({ options, config, output }) {
    const login = findLogin(config)
    if (login !== undefined) return printRemoteDeposit(login, output)
    return withDatabase(config, async (database) => {
      const account = await whichAccount(database, options.account)
      const address = await untilAddressed(database, account)
      const owner = { partition: account.partition, accountId: account.id }
      const deposits = (await listDeposits(database, owner, { limit: depositsMax })).map(render)
      const shown = checksummed(address as Address)
      if (output.json) {
        output.write(`${JSON.stringify({ address: shown, min: format(config.sweepMin), deposits }, null, 2)}\n`)
        return 0
      }
      output.write(`Send only USDC to ${shown}\n`)
      output.write(`Deposits below ${format(config.sweepMin)} USDC are credited once they add up to that.\n`)
      output.write('Deposits below 1 USDC are credited together, at most once every 10 minutes.\n\n')
      printRows(
        output,
        deposits.map(({ waits_until, ...row }) => row),
      )
      return 0
    })
  },
}

function render({ createdAt, amount, state, waitsUntil, seenTxHash }: ListedDeposit) {
  return {
    seen_at: createdAt.toISOString(),
    amount: format(amount),
    state,
    waits_until: waitsUntil?.toISOString() ?? null,
    tx_hash: seenTxHash === undefined ? null : `0x${seenTxHash.toString('hex')}`,
  }
}
