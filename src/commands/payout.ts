import { setTimeout as sleep } from 'node:timers/promises'
import type { Database } from '../db/database.ts'
import { findPayout, type ReadBalance, readPayable } from '../ledger/payouts.ts'
import { format } from '../money/usdc.ts'
import { requestPayout } from '../settlement/payout.ts'
import { readSettlementEndpoints } from '../settlement/settlement-endpoints.ts'
import { type Address, parseAddress } from '../signer/address.ts'
import { type Command, CommandError, type Output } from './command.ts'
import { confirm, confirmOptions, confirmUsage } from './confirm.ts'
import { readAmountOrAll } from './read-options.ts'
import { readSellerBalance } from './seller-balance.ts'
import { withDatabase } from './with-database.ts'

const payoutMsMax = 120_000
const pollMs = 200

export const payoutCommand: Command = {
  usage: [
    ['penny payout', 'Show the revenue and how much of it can be paid out'],
    ['penny payout --amount USDC|all', 'Pay it to PAYOUT_ADDRESS'],
    ...confirmUsage,
  ],
  options: { amount: { type: 'string' }, ...confirmOptions },
  async run({ options, config, output }) {
    const amount = typeof options.amount === 'string' ? readAmountOrAll('amount', options.amount) : undefined
    const { terms } = readSettlementEndpoints(config.dataDir)
    const readBalance = () => readSellerBalance(config.dataDir)
    return await withDatabase(config, async (database) => {
      if (amount === undefined) return show(database, terms.seller, readBalance, output)
      const recipient = config.payoutAddress === undefined ? undefined : parseAddress(config.payoutAddress)
      if (recipient === undefined)
        throw new CommandError('Set PAYOUT_ADDRESS, also for the service. Payouts go to this address.')
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
      : `${facts.balance} USDC at the gateway, of which ${facts.payable} can be paid out; the rest is credit of accounts or may be refunded to retries.\n`,
  )
  return 0
}

/** Waits until the payout has ended. The running service executes it. */
async function follow(database: Database, id: string, output: Output): Promise<number> {
  const deadline = performance.now() + payoutMsMax
  for (;;) {
    const payout = (await findPayout(database, id))!
    const { state, transactionHash: txHash = null, reason = null } = payout
    if (state === 'confirmed' || state === 'failed') {
      const line = state === 'confirmed' ? `Paid in transaction ${txHash}.` : `Failed: ${reason}.`
      output.write(output.json ? `${JSON.stringify({ id, state, reason, txHash })}\n` : `${line}\n`)
      return state === 'confirmed' ? 0 : 1
    }
    if (performance.now() > deadline)
      throw new CommandError(`Payout ${id} is still in progress. See the log of the service.`)
    await sleep(pollMs)
  }
}
