import type { Database } from '../db/database.ts'
import { findFreeze, findViolations, invariants, unfreezeLedger, type Violation } from '../ledger/audit.ts'
import { openChain } from '../settlement/chain.ts'
import { findMoneyLine } from '../settlement/money-line.ts'
import { checkSolvency } from '../settlement/solvency.ts'
import { type Command, CommandError, printRows } from './command.ts'
import { withDatabase } from './with-database.ts'

export const auditCommand: Command = {
  summary: 'check the books: every invariant of the ledger, on every account',
  usage: `penny audit                       exit code 0 when the books are right, 1 when they are not; against the chain too, when it answers
      --unfreeze                      take new requests again, once the books are right`,
  options: { unfreeze: { type: 'boolean' } },
  async run({ options, config, output }) {
    return withDatabase(config, async (database) => {
      const chain = await auditChain(database, config.dataDir)
      const violations = [...(await findViolations(database)), ...(chain ?? [])]
      const broken = new Set(violations.map(({ invariant }) => invariant))
      if (output.json)
        output.write(
          `${JSON.stringify({ ok: violations.length === 0, frozen: (await findFreeze(database)) ?? null, violations }, null, 2)}\n`,
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
        const freeze = await findFreeze(database)
        if (freeze !== undefined) output.write(`The ledger is frozen: ${freeze}\n`)
      }
      if (options.unfreeze === true) {
        if (violations.length > 0) throw new CommandError('The books are not right: the ledger stays frozen.')
        await unfreezeLedger(database)
      }
      return violations.length === 0 ? 0 : 1
    })
  },
}

/** I17: the chain has what the books say. Undefined when no chain is known here or it does not answer. */
async function auditChain(database: Database, dataDir: string): Promise<readonly Violation[] | undefined> {
  const line = findMoneyLine(dataDir)
  if (line === undefined) return undefined
  const { usdc, gatewayWallet, seller } = line.terms
  const chain = await openChain({ rpcUrl: line.rpcUrl, usdc: usdc.address, gatewayWallet }).catch(() => undefined)
  if (chain === undefined) return undefined
  const { short } = await checkSolvency({ database, chain, seller })
  return short.map(({ address, owed_atomic: owed, on_chain_atomic: onChain }) => ({
    invariant: 'I17',
    subject: address,
    detail: `owed ${owed}, on chain ${onChain}`,
  }))
}
