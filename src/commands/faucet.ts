import { setTimeout as sleep } from 'node:timers/promises'
import { NoSandboxError, SandboxRefusalError, sandboxClient } from '../../sandbox/client.ts'
import type { Database } from '../db/database.ts'
import { type Account, findAccount } from '../ledger/accounts.ts'
import { format } from '../money/usdc.ts'
import { type Command, CommandError } from './command.ts'
import { readAmount } from './read-options.ts'
import { untilAddressed } from './until-addressed.ts'
import { whichAccount } from './which-account.ts'
import { withDatabase } from './with-database.ts'

const creditMsMax = 120_000
const pollMs = 100

export const faucetCommand: Command = {
  usage: [
    ['penny faucet', 'Send 25 test USDC to the demo account'],
    ['--amount USDC', 'Amount (default: 25)'],
    ['--account ID|NAME', 'Account to fund (default: the demo account)'],
    ['--address 0x…', 'Send to this wallet instead; no account is credited'],
  ],
  options: { amount: { type: 'string' }, account: { type: 'string' }, address: { type: 'string' } },
  async run({ options, config, output }) {
    const amount = readAmount('amount', typeof options.amount === 'string' ? options.amount : '25')
    const give = async (address: string) => {
      try {
        return await sandboxClient(config.dataDir).faucet(address, amount)
      } catch (error) {
        if (error instanceof NoSandboxError || error instanceof SandboxRefusalError)
          throw new CommandError(error.message)
        throw error
      }
    }
    if (typeof options.address === 'string') {
      const transaction = await give(options.address)
      output.write(
        output.json ? `${JSON.stringify({ tx_hash: transaction })}\n` : `Sent ${format(amount)} test USDC.\n`,
      )
      return 0
    }
    return withDatabase(config, async (database) => {
      const account = await whichAccount(database, options.account)
      const address = await untilAddressed(database, account)
      const transaction = await give(address)
      if (!output.json) output.write(`Sent ${format(amount)} test USDC to ${address}.\n`)
      const { spendable } = await untilCredited(database, account)
      output.write(
        output.json
          ? `${JSON.stringify({ tx_hash: transaction, address, spendable_atomic: spendable.toString() })}\n`
          : `Credited: ${account.name} can spend ${format(spendable)} USDC.\n`,
      )
      return 0
    })
  },
}

async function untilCredited(database: Database, before: Account): Promise<Account> {
  const deadline = performance.now() + creditMsMax
  for (;;) {
    const account = (await findAccount(database, before.partition, before.id))!
    if (account.deposited > before.deposited) return account
    if (performance.now() > deadline)
      throw new CommandError('The deposit is not credited yet. penny deposit shows its progress.')
    await sleep(pollMs)
  }
}
