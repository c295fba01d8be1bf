import { fundsContracts } from '../openapi/contracts/funds.ts'
import { keyContracts } from '../openapi/contracts/keys.ts'
import { accountOption, accountUsage, type Client, findClient } from './client.ts'
import type { Command, Output } from './command.ts'
import { withDecimals } from './table.ts'

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
  ['pending_deposits', 'seen on chain, on its way in'],
  ['pending_withdrawals', 'on its way out'],
  ['given_back', 'refunded charges'],
] as const

export const balanceCommand: Command = {
  usage: [
    ['penny balance', 'Balance of an account; with the login of an API key, what the key can spend'],
    ...accountUsage,
  ],
  options: accountOption,
  async run(invocation) {
    const { output } = invocation
    const client = findClient(invocation)
    if (!client.manages) return printOfKey(client, output)
    const balance = await client.call(fundsContracts.getBalance)
    if (output.json) output.write(`${JSON.stringify(balance, null, 2)}\n`)
    else {
      output.write(`Account ${balance.account_id}\n\n`)
      for (const [part, meaning] of shown)
        output.write(
          `${part.replace('_', ' ').padEnd(20)} ${withDecimals(balance[part], 6).padStart(16)}  ${meaning}\n`,
        )
    }
    return 0
  },
}

async function printOfKey(client: Client, output: Output): Promise<number> {
  const key = await client.call(keyContracts.getOwnKey)
  if (output.json) output.write(`${JSON.stringify(key, null, 2)}\n`)
  else {
    const limit = key.limit === null ? 'no limit' : `${key.remaining} of ${key.limit} left (${key.limit_window})`
    output.write(`${key.available} USDC can be spent at ${client.origin}.\n`)
    output.write(`Key "${key.name}" (${key.hint}): spent ${key.spent}, held ${key.held}, ${limit}.\n`)
  }
  return 0
}
