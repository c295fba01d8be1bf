import { setTimeout as sleep } from 'node:timers/promises'
import { format } from '../money/usdc.ts'
import { readMoneyLine } from '../settlement/money-line.ts'
import { findPayout, readPayable, requestPayout } from '../settlement/payout.ts'
import { createRail } from '../settlement/rail.ts'
import { parseAddress } from '../signer/address.ts'
import { type Command, CommandError } from './command.ts'
import { readAmountOrAll } from './read-options.ts'
import { withDatabase } from './with-database.ts'

const payoutMsMax = 120_000
const pollMs = 200

export const payoutCommand: Command = {
  summary: 'pay the operator’s revenue out of the gateway',
  usage: `penny payout                      what was earned and can be paid out
  penny payout --amount USDC|all    pays it to PAYOUT_ADDRESS`,
  options: { amount: { type: 'string' } },
  async run({ options, config, output }) {
    const amount = typeof options.amount === 'string' ? readAmountOrAll('amount', options.amount) : undefined
    const { gatewayUrl, terms } = readMoneyLine(config.dataDir)
    const rail = createRail({ url: gatewayUrl, domain: terms.gatewayDomain })
    try {
      return await withDatabase(config, async (database) => {
        const readBalance = () => rail.balance(terms.seller)
        if (amount === undefined) {
          const left = await readPayable(database, readBalance)
          const facts = { seller: terms.seller, balance: format(await readBalance()), payable: format(left) }
          output.write(
            output.json
              ? `${JSON.stringify(facts)}\n`
              : `${facts.balance} USDC at the gateway, of which ${facts.payable} can be paid out; the rest is owed to accounts as credit.\n`,
          )
          return 0
        }
        const recipient = config.payoutAddress === undefined ? undefined : parseAddress(config.payoutAddress)
        if (recipient === undefined)
          throw new CommandError('Set PAYOUT_ADDRESS, for the service too: it is where revenue goes.')
        const id = await requestPayout(database, amount, recipient, readBalance)
        const deadline = performance.now() + payoutMsMax
        for (;;) {
          const payout = (await findPayout(database, id))!
          if (payout.state === 'confirmed' || payout.state === 'failed') {
            const line =
              payout.state === 'confirmed' ? `Paid in transaction ${payout.txHash}.` : `Failed: ${payout.reason}.`
            output.write(output.json ? `${JSON.stringify({ id, ...payout })}\n` : `${line}\n`)
            return payout.state === 'confirmed' ? 0 : 1
          }
          if (performance.now() > deadline)
            throw new CommandError(`Payout ${id} is still under way: see the service's log.`)
          await sleep(pollMs)
        }
      })
    } finally {
      await rail.close()
    }
  },
}
