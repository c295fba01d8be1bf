import { setTimeout as sleep } from 'node:timers/promises'
import { NoSandboxError, SandboxRefusalError, sandboxClient } from '../../sandbox/client.ts'
import { format, type Usdc } from '../money/usdc.ts'
import type { AnswerOf } from '../openapi/contract.ts'
import { fundsContracts } from '../openapi/contracts/funds.ts'
import { accountOption, accountUsage, type Client, findClient } from './client.ts'
import { type Command, CommandError, type Invocation } from './command.ts'
import { readAmount } from './read-options.ts'

type Balance = AnswerOf<typeof fundsContracts.getBalance>

const creditMsMax = 120_000
const pollMs = 100

export const faucetCommand: Command = {
  usage: [
    ['penny faucet', 'Send 25 test USDC to an account'],
    ['--amount USDC', 'Amount (default: 25)'],
    ...accountUsage,
    ['--address 0x…', 'Send to this wallet instead; no account is credited'],
  ],
  options: { ...accountOption, amount: { type: 'string' }, address: { type: 'string' } },
  async run(invocation) {
    const { options, output } = invocation
    const amount = readAmount('amount', typeof options.amount === 'string' ? options.amount : '25')
    if (typeof options.address === 'string') {
      const tx_hash = await give(invocation, options.address, amount)
      output.write(output.json ? `${JSON.stringify({ tx_hash })}\n` : `Sent ${format(amount)} test USDC.\n`)
      return 0
    }
    const client = findClient(invocation)
    const { deposit_address: address } = await client.call(fundsContracts.listDeposits, { query: { limit: 1 } })
    if (address === null)
      throw new CommandError('The account has no deposit address: it pays over x402. Use --address.')
    const before = await client.call(fundsContracts.getBalance)
    const tx_hash = await give(invocation, address, amount)
    if (!output.json) output.write(`Sent ${format(amount)} test USDC to ${address}.\n`)
    const { available, available_atomic } = await untilCredited(client, before)
    output.write(
      output.json
        ? `${JSON.stringify({ tx_hash, address, spendable_atomic: available_atomic })}\n`
        : `Credited: the account can spend ${available} USDC.\n`,
    )
    return 0
  },
}

async function give({ config }: Invocation, address: string, amount: Usdc): Promise<string> {
  try {
    return await sandboxClient(config.dataDir).faucet(address, amount)
  } catch (error) {
    if (error instanceof NoSandboxError || error instanceof SandboxRefusalError) throw new CommandError(error.message)
    throw error
  }
}

async function untilCredited(client: Client, before: Balance): Promise<Balance> {
  const deadline = performance.now() + creditMsMax
  for (;;) {
    const balance = await client.call(fundsContracts.getBalance)
    if (BigInt(balance.deposited_atomic) > BigInt(before.deposited_atomic)) return balance
    if (performance.now() > deadline)
      throw new CommandError('The deposit is not credited yet. penny deposit shows its progress.')
    await sleep(pollMs)
  }
}
