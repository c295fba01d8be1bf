import { readBalance } from '../ledger/balance.ts'
import { format, type Usdc } from '../money/usdc.ts'
import type { Command } from './command.ts'
import { findLogin } from './login-file.ts'
import { printRemoteBalance } from './remote.ts'
import { withDecimals } from './table.ts'
import { whichAccount } from './which-account.ts'
import { withDatabase } from './with-database.ts'

const shown = [
  ['available', 'can be spent now'],
  ['gateway', 'deposited and never held'],
  ['credit', 'held and not used; below 0: a debt'],
  ['held', 'quotes of open requests'],
  ['extended', 'held beyond their quotes, for searches'],
  ['unsettled', 'charged and not yet paid on chain'],
  ['deposited', 'over the account’s life'],
  ['withdrawn', 'over the account’s life'],
  ['charged', 'over the account’s life'],
  ['pendingDeposits', 'seen on chain, on its way in'],
  ['pendingWithdrawals', 'on its way out'],
] as const

export const balanceCommand: Command = {
  usage: [
    ['penny balance', 'Balance of the only account, or of the demo account of the sandbox'],
    ['--account ID|NAME', 'Account to show'],
  ],
  options: { account: { type: 'string' } },
  async run({ options, config, output }) {
    const login = findLogin(config)
    if (login !== undefined) return printRemoteBalance(login, output)
    return withDatabase(config, async (database) => {
      const { id, name, partition, givenBack } = await whichAccount(database, options.account)
      const balance = await readBalance(database, { partition, accountId: id })
      const amounts: [string, Usdc, string][] = shown.map(([part, meaning]) => [part, balance[part], meaning])
      amounts.push(['givenBack', givenBack, 'refunded charges'])
      if (output.json) {
        const fields = amounts.flatMap(([part, amount]) => {
          const field = part.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
          return [
            [`${field}_atomic`, amount.toString()],
            [field, format(amount)],
          ]
        })
        output.write(`${JSON.stringify({ account_id: id, name, ...Object.fromEntries(fields) }, null, 2)}\n`)
        return 0
      }
      output.write(`${name} (${id})\n\n`)
      for (const [part, amount, meaning] of amounts) {
        const words = part.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)
        output.write(`${words.padEnd(20)} ${withDecimals(format(amount), 6).padStart(16)}  ${meaning}\n`)
      }
      return 0
    })
  },
}
