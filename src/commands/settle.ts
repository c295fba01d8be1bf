import { summarizePayments } from '../ledger/payments.ts'
import { format } from '../money/usdc.ts'
import { readSolvency } from '../settlement/solvency.ts'
import { type Command, CommandError } from './command.ts'
import { printRows } from './table.ts'
import { withDatabase } from './with-database.ts'

/** Explanations of states whose name alone is unclear. */
const stateWords: Readonly<Record<string, string>> = {
  unpaid: 'unpaid (accounts with charges that no payment covers yet)',
}

export const settleCommand: Command = {
  usage: [['penny settle status', 'Show payments by state, and compare ledger and chain']],
  options: {},
  wordsMax: 1,
  async run({ words: [verb = 'status'], config, output }) {
    if (verb !== 'status') throw new CommandError(`penny settle has no verb "${verb}". It has: status.`, 2)
    return withDatabase(config, async (database) => {
      const rows = (await summarizePayments(database)).map(({ state, count, value, oldest }) => ({
        state,
        count,
        value: format(value),
        oldest: oldest?.toISOString() ?? null,
      }))
      const solvency = (await readSolvency(database)) as Record<string, unknown> | undefined
      if (output.json) {
        output.write(`${JSON.stringify({ payments: rows, solvency: solvency ?? null }, null, 2)}\n`)
        return solvency?.ok === false ? 1 : 0
      }
      printRows(
        output,
        rows.map((row) => ({ ...row, state: stateWords[row.state] ?? row.state })),
      )
      if (solvency === undefined) output.write('\nLedger and chain were not compared yet.\n')
      else output.write(`\n${describeSolvency(solvency)}\n`)
      return solvency?.ok === false ? 1 : 0
    })
  },
}

function describeSolvency(solvency: Record<string, unknown>): string {
  const {
    owed,
    on_chain: onChain,
    block,
    accounts,
    short,
    seller_short: missing,
    seller_short_atomic: missingAtomic,
  } = solvency
  const areAccountsShort = Array.isArray(short) && short.length > 0
  const sums = `${String(owed)} USDC owed to ${String(accounts)} ${accounts === 1 ? 'account' : 'accounts'}, ${String(onChain)} on chain at block ${String(block)}.`
  const match = `Ledger and chain ${areAccountsShort ? 'DO NOT match' : 'match'}: ${sums}`
  if (missingAtomic === '0') return match
  return `${match}\nThe seller has ${String(missing)} USDC less than it owes back. See docs/runbooks/seller-short.md.`
}
