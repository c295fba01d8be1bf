import { fundsContracts } from '../openapi/contracts/funds.ts'
import { keyContracts } from '../openapi/contracts/keys.ts'
import { type Address, checksummed } from '../signer/address.ts'
import { accountOption, accountUsage, findClient } from './client.ts'
import { type Command, CommandError } from './command.ts'
import { printRows } from './table.ts'

const depositsMax = 100

export const depositCommand: Command = {
  usage: [['penny deposit', 'Show the deposit address and the latest deposits with their steps'], ...accountUsage],
  options: accountOption,
  async run(invocation) {
    const { output } = invocation
    const client = findClient(invocation)
    const list = client.manages
      ? await client.call(fundsContracts.listDeposits, { query: { limit: depositsMax } })
      : { ...(await client.call(keyContracts.getOwnKey)), data: undefined }
    if (list.deposit_address === null)
      throw new CommandError(
        `${client.origin} has no deposit address for this account. A new account gets one within minutes; one that pays over x402 has none.`,
      )
    const address = checksummed(list.deposit_address as Address)
    const deposits = list.data?.map((deposit) => ({
      seen_at: deposit.created_at,
      amount: deposit.amount,
      state: deposit.state,
      waits_until: deposit.waits_until,
      tx_hash: deposit.tx_hash,
    }))
    if (output.json) {
      output.write(`${JSON.stringify({ address, deposits }, null, 2)}\n`)
      return 0
    }
    output.write(`Send only USDC to ${address}\n`)
    output.write('Deposits below 1 USDC are credited together, at most once every 10 minutes.\n\n')
    if (deposits === undefined) output.write(`Deposits are shown in the dashboard: ${client.origin}/funds\n`)
    else
      printRows(
        output,
        deposits.map(({ waits_until, ...row }) => row),
      )
    return 0
  },
}
