import { setTimeout as sleep } from 'node:timers/promises'
import type { Database } from '../db/database.ts'
import { format } from '../money/usdc.ts'
import { readMoneyLine } from '../settlement/money-line.ts'
import { findPayout, type ReadBalance, readPayable, requestPayout } from '../settlement/payout.ts'
import { createRail } from '../settlement/rail.ts'
import { type Address, parseAddress } from '../signer/address.ts'
import { type Command, CommandError, type Output } from './command.ts'
import { confirm, confirmOptions, confirmUsage } from './confirm.ts'
import { readAmountOrAll } from './read-options.ts'
import { withDatabase } from './with-database.ts'

const payoutMsMax = 120_000
const pollMs = 200

export const payoutCommand: Command = {
  summary: 'pay the operator’s revenue out of the gateway',
  usage: `penny payout                      what was earned and can be paid out
  penny payout --amount USDC|all    pays it to PAYOUT_ADDRESS
${confirmUsage}`,
  options: { amount: { type: 'string' }, ...confirmOptions },
  async run({ options, config, output }) {
    const amount = typeof options.amount === 'string' ? readAmountOrAll('amount', options.amount) : undefined
    const { gatewayUrl, gatewayToken, terms } = readMoneyLine(config.dataDir)
    await using rail = createRail({ url: gatewayUrl, token: gatewayToken, domain: terms.gatewayDomain })
    const readBalance = () => rail.balance(terms.seller)
    return await withDatabase(config, async (database) => {
      if (amount === undefined) return show(database, terms.seller, readBalance, output)
      const recipient = config.payoutAddress === undefined ? undefined : parseAddress(config.payoutAddress)
      if (recipient === undefined)
        throw new CommandError('Set PAYOUT_ADDRESS, for the service too: it is where revenue goes.')
      const sum = amount === 'all' ? 'all that can be paid out' : `${format(amount)} USDC`
      await confirm({ options }, `Pay ${sum} to ${recipient}?`)
      return follow(database, await requestPayout(database, amount, recipient, readBalance), output)
    })
  },
}

async function show(database: Database, seller: Address, readBalance: ReadBalance, output: Output): Promise<number> {
  const left = await readPayable(database, readBalance)
  const facts = { seller, balance: format(await readBalance()), payable: format(left) }
  output.write(
    output.json
      ? `${JSON.stringify(facts)}\n`
      : `${facts.balance} USDC at the gateway, of which ${facts.payable} can be paid out; the rest is owed to accounts as credit, or may be given back to a retry.\n`,
  )
  return 0
}

/** Until it has ended: the running service carries it out. */
async function follow(database: Database, id: string, output: Output): Promise<number> {
  const deadline = performance.now() + payoutMsMax
  for (;;) {
    const payout = (await findPayout(database, id))!
    const { state, txHash, reason } = payout
    if (state === 'confirmed' || state === 'failed') {
      const line = state === 'confirmed' ? `Paid in transaction ${txHash}.` : `Failed: ${reason}.`
      output.write(output.json ? `${JSON.stringify({ id, ...payout })}\n` : `${line}\n`)
      return state === 'confirmed' ? 0 : 1
    }
    if (performance.now() > deadline) throw new CommandError(`Payout ${id} is still under way: see the service's log.`)
    await sleep(pollMs)
  }
}
