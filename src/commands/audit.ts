import { rpcHostsOf } from '../chain/nodes.ts'
import type { Config } from '../config/config.ts'
import type { Database } from '../db/database.ts'
import { findViolations, type Violation } from '../ledger/audit.ts'
import { copiedAtCursor, deleteCursor } from '../ledger/chain-cursors.ts'
import { findFreeze, freezeLedger, restoredReason, unfreezeLedger } from '../ledger/freeze.ts'
import { chainOptions, openChain } from '../settlement/chain.ts'
import { findSettlementEndpoints, type SettlementEndpoints } from '../settlement/settlement-endpoints.ts'
import { checkSolvency, isSolvent } from '../settlement/solvency.ts'
import { type Command, CommandError, type Output } from './command.ts'
import { printRows } from './table.ts'
import { withDatabase } from './with-database.ts'

const reasonLengthMax = 500

/** Short forms; ARCHITECTURE.md has the full statements. */
const meanings: Readonly<Record<string, string>> = {
  I1: 'deposits = balance + held + charges - refunds + withdrawals',
  I2: 'held = sum of the open requests',
  I3: 'no account spends more than it has',
  I4: 'spent by a key = sum of its requests, less refunds',
  I5: 'a request ends once, within its hold',
  I6: 'every charge has its usage and prices',
  I7: 'every charged search has its line',
  I8: 'entries are numbered 1, 2, 3 … without a gap',
  I9: 'payments cover all entries in order, at their sum',
  I10: 'paid and covered = sums of payments',
  I11: 'running totals = sums of the rows',
  I12: 'the chain matches the ledger',
  I13: 'snapshots of the liabilities = running totals',
}

export const auditCommand: Command = {
  usage: [
    [
      'penny audit',
      'Exit code 0 if all invariants hold, 1 if not. Compares the ledger with the chain if a chain node responds',
    ],
    ['--unfreeze', 'If all invariants hold, accept new requests again'],
    ['--freeze REASON', 'Refuse new requests; running ones finish'],
  ],
  options: { unfreeze: { type: 'boolean' }, freeze: { type: 'string' } },
  async run({ options, config, output }) {
    return withDatabase(config, async (database) => {
      if (options.freeze !== undefined) return freeze(database, String(options.freeze), output)
      const endpoints = findSettlementEndpoints(config.dataDir)
      const chain = endpoints && (await auditChain(database, endpoints))
      const violations = [...(await findViolations(database)), ...(chain ?? [])]
      const broken = new Set(violations.map(({ invariant }) => invariant))
      const frozen = await findFreeze(database)
      if (output.json)
        output.write(
          `${JSON.stringify({ ok: violations.length === 0, frozen: frozen ?? null, chain_checked: chain !== undefined, violations }, null, 2)}\n`,
        )
      else {
        printRows(
          output,
          Object.keys(meanings).map((invariant) => ({
            invariant,
            state: broken.has(invariant)
              ? 'BROKEN'
              : invariant === 'I12' && chain === undefined
                ? 'not checked'
                : 'holds',
            meaning: meanings[invariant] ?? '',
          })),
        )
        if (violations.length > 0) printRows(output, violations)
        if (frozen !== undefined && options.unfreeze !== true) output.write(`The ledger is frozen: ${frozen}\n`)
      }
      if (options.unfreeze === true) {
        if (violations.some(({ subject }) => subject !== endpoints?.terms.seller))
          throw new CommandError('An invariant fails: the ledger stays frozen.')
        if (chain === undefined && needsChain(config, endpoints, frozen))
          throw new CommandError(
            endpoints === undefined
              ? 'Ledger and chain were not compared, so the ledger stays frozen. Run this command on the machine that settles.'
              : `The chain node ${rpcHostsOf(endpoints.rpcUrl)} does not respond. Ledger and chain were not compared, so the ledger stays frozen.`,
          )
        await unfreezeLedger(database)
        // The marker of a restored copy is no longer needed: the next recovery starts from its own copy.
        await deleteCursor(database, copiedAtCursor)
        if (!output.json)
          output.write(
            frozen === undefined
              ? 'The ledger was not frozen. It accepts requests.\n'
              : `The ledger is no longer frozen (reason: ${frozen}). It accepts requests again.\n`,
          )
      }
      return violations.length === 0 ? 0 : 1
    })
  },
}

async function freeze(database: Database, reason: string, output: Output): Promise<number> {
  if (reason.trim() === '' || reason.length > reasonLengthMax)
    throw new CommandError(
      `Give a reason of at most ${reasonLengthMax} characters: penny audit --freeze "a key may have leaked".`,
      2,
    )
  const before = await findFreeze(database)
  await freezeLedger(database, `by the operator: ${reason.trim()}`)
  const frozen = await findFreeze(database)
  output.write(
    output.json
      ? `${JSON.stringify({ frozen })}\n`
      : `The ledger ${before === undefined ? 'is' : 'was already'} frozen: ${frozen}\nNew requests are refused until penny audit --unfreeze.\n`,
  )
  return 0
}

/** A ledger with a chain, or one that was frozen because of it, must also be compared with the chain. */
function needsChain({ chain }: Config, endpoints: SettlementEndpoints | undefined, frozen = ''): boolean {
  const hasChain = chain !== undefined || endpoints !== undefined
  return hasChain || frozen.startsWith('I12') || frozen.startsWith(restoredReason)
}

/** I12: the chain matches the ledger, for every account and for the seller. Undefined when the chain does not answer. */
async function auditChain(
  database: Database,
  endpoints: SettlementEndpoints,
): Promise<readonly Violation[] | undefined> {
  const { seller } = endpoints.terms
  const report = await openChain(chainOptions(endpoints))
    .then((chain) => checkSolvency({ database, chain, seller }))
    .catch(() => undefined)
  if (report === undefined) return undefined
  const violation = (subject: string, owed: string, onChain: string) => {
    return { invariant: 'I12', subject, detail: `owed ${owed}, on chain ${onChain}` }
  }
  const short = report.short.map((row) => violation(row.address, row.owed_atomic, row.on_chain_atomic))
  const isSellerShort = short.length === 0 && !isSolvent(report)
  return isSellerShort ? [violation(seller, report.owed_back_atomic, report.seller_atomic)] : short
}
