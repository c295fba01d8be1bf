import type { Database } from '../db/database.ts'
import { findFreeze, findViolations, invariants, unfreezeLedger, type Violation } from '../ledger/audit.ts'
import { openChain } from '../settlement/chain.ts'
import { findMoneyLine, type MoneyLine } from '../settlement/money-line.ts'
import { checkSolvency, isSolvent } from '../settlement/solvency.ts'
import { type Command, CommandError, printRows } from './command.ts'
import { withDatabase } from './with-database.ts'

export const auditCommand: Command = {
  summary: 'check the books: every invariant of the ledger, on every account',
  usage: `penny audit                       exit code 0 when the books are right, 1 when they are not; against the chain too, when it answers
      --unfreeze                      take new requests again, once the books are right`,
  options: { unfreeze: { type: 'boolean' } },
  async run({ options, config, output }) {
    return withDatabase(config, async (database) => {
      const line = findMoneyLine(config.dataDir)
      const chain = line && (await auditChain(database, line))
      const violations = [...(await findViolations(database)), ...(chain ?? [])]
      const broken = new Set(violations.map(({ invariant }) => invariant))
      const freeze = await findFreeze(database)
      if (output.json)
        output.write(
          `${JSON.stringify({ ok: violations.length === 0, frozen: freeze ?? null, chain_checked: chain !== undefined, violations }, null, 2)}\n`,
        )
      else {
        printRows(
          output,
          [...invariants, 'I17'].map((invariant) => ({
            invariant,
            state: broken.has(invariant)
              ? 'BROKEN'
              : invariant === 'I17' && chain === undefined
                ? 'not checked'
                : 'holds',
          })),
        )
        if (violations.length > 0) printRows(output, violations)
        if (freeze !== undefined) output.write(`The ledger is frozen: ${freeze}\n`)
      }
      if (options.unfreeze === true) {
        if (violations.length > 0) throw new CommandError('The books are not right: the ledger stays frozen.')
        // Books that were frozen because of the chain, or that have one, are right only when it says so too.
        if (chain === undefined && (line !== undefined || freeze?.startsWith('I17')))
          throw new CommandError(
            line === undefined
              ? 'The books were not compared with the chain: the ledger stays frozen. Run this where the service settles.'
              : `The chain does not answer at ${hostOf(line)}: the books were not compared with it, and the ledger stays frozen.`,
          )
        await unfreezeLedger(database)
      }
      return violations.length === 0 ? 0 : 1
    })
  },
}

/** I17: the chain has what the books say, for every account and for the seller. Undefined when it does not answer. */
async function auditChain(database: Database, line: MoneyLine): Promise<readonly Violation[] | undefined> {
  const { usdc, gatewayWallet, seller } = line.terms
  const options = { rpcUrl: line.rpcUrl, usdc: usdc.address, gatewayWallet }
  const report = await openChain(options)
    .then((chain) => checkSolvency({ database, chain, seller }))
    .catch(() => undefined)
  if (report === undefined) return undefined
  const violation = (subject: string, owed: string, onChain: string) => {
    return { invariant: 'I17', subject, detail: `owed ${owed}, on chain ${onChain}` }
  }
  const short = report.short.map((row) => violation(row.address, row.owed_atomic, row.on_chain_atomic))
  const isSellerShort = short.length === 0 && !isSolvent(report)
  return isSellerShort ? [violation(seller, report.credit_atomic, report.seller_atomic)] : short
}

/** Not the whole address: it may carry a key. */
function hostOf({ rpcUrl }: MoneyLine): string {
  return URL.canParse(rpcUrl) ? new URL(rpcUrl).host : 'its address'
}
