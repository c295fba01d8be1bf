import type { Config } from '../config.ts'
import type { Database } from '../db/database.ts'
import { findViolations, invariants, type Violation } from '../ledger/audit.ts'
import { copiedAtCursor, forgetCursor } from '../ledger/chain-cursors.ts'
import { findFreeze, freezeLedger, restoredReason, unfreezeLedger } from '../ledger/freeze.ts'
import { chainOptions, openChain } from '../settlement/chain.ts'
import { findMoneyLine, type MoneyLine } from '../settlement/money-line.ts'
import { checkSolvency, isSolvent } from '../settlement/solvency.ts'
import { type Command, CommandError, type Output } from './command.ts'
import { printRows } from './table.ts'
import { withDatabase } from './with-database.ts'

const reasonLengthMax = 500

/** Each in a few words; in full in ARCHITECTURE.md. */
const meanings: Readonly<Record<string, string>> = {
  I1: 'deposits = gateway + payments + withdrawals',
  I2: 'payments = charges + holds + credit',
  I3: 'held = sum of the open requests',
  I4: 'no account spends more than it has',
  I5: 'spent by a key = sum of its requests',
  I6: 'a request ends once, within its hold',
  I7: 'every payment has a nonce of its own',
  I8: 'every charge has its usage and prices',
  I13: 'every charged search has its line',
  I14: 'unsettled = sum of the payments under way',
  I15: 'every ended request has its receipt',
  I16: 'running totals = sums of the rows',
  I17: 'the chain has what the books say',
}

export const auditCommand: Command = {
  summary: 'check the books: every invariant of the ledger, on every account',
  usage: `penny audit                       exit code 0 when the books are right, 1 when they are not; against the chain too, when it answers
      --unfreeze                      take new requests again, once the books are right
  penny audit --freeze REASON       take no new requests, on purpose; those that run go on`,
  options: { unfreeze: { type: 'boolean' }, freeze: { type: 'string' } },
  async run({ options, config, output }) {
    return withDatabase(config, async (database) => {
      if (options.freeze !== undefined) return freeze(database, String(options.freeze), output)
      const line = findMoneyLine(config.dataDir)
      const chain = line && (await auditChain(database, line))
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
          [...invariants, 'I17'].map((invariant) => ({
            invariant,
            state: broken.has(invariant)
              ? 'BROKEN'
              : invariant === 'I17' && chain === undefined
                ? 'not checked'
                : 'holds',
            meaning: meanings[invariant] ?? '',
          })),
        )
        output.write('I9 to I12 are about order in time: code and tests keep them, no query can.\n')
        if (violations.length > 0) printRows(output, violations)
        if (frozen !== undefined && options.unfreeze !== true) output.write(`The ledger is frozen: ${frozen}\n`)
      }
      if (options.unfreeze === true) {
        if (violations.some(({ subject }) => subject !== line?.terms.seller))
          throw new CommandError('The books are not right: the ledger stays frozen.')
        if (chain === undefined && needsChain(config, line, frozen))
          throw new CommandError(
            line === undefined
              ? 'The books were not compared with the chain: the ledger stays frozen. Run this where the service settles.'
              : `The chain does not answer at ${hostOf(line)}: the books were not compared with it, and the ledger stays frozen.`,
          )
        await unfreezeLedger(database)
        // Of a copy that was restored, or of somebody who only meant to stop: the next recovery begins at its own copy.
        await forgetCursor(database, copiedAtCursor)
        if (!output.json)
          output.write(
            frozen === undefined
              ? 'The ledger was not frozen. Requests are taken.\n'
              : `The ledger was frozen (${frozen}) and is not any more. Requests are taken again.\n`,
          )
      }
      return violations.length === 0 ? 0 : 1
    })
  },
}

async function freeze(database: Database, reason: string, output: Output): Promise<number> {
  if (reason.trim() === '' || reason.length > reasonLengthMax)
    throw new CommandError(
      `Say why, in at most ${reasonLengthMax} characters: penny audit --freeze "a key may have leaked".`,
      2,
    )
  await freezeLedger(database, `by the operator: ${reason.trim()}`)
  const frozen = await findFreeze(database)
  output.write(
    output.json
      ? `${JSON.stringify({ frozen })}\n`
      : `The ledger is frozen: ${frozen}\nNew requests are refused; penny audit --unfreeze takes them again.\n`,
  )
  return 0
}

/** Books that have a chain, or that were frozen because of it, are right only when it says so too. */
function needsChain({ chain }: Config, line: MoneyLine | undefined, frozen = ''): boolean {
  const hasChain = chain !== undefined || line !== undefined
  return hasChain || frozen.startsWith('I17') || frozen.startsWith(restoredReason)
}

/** I17: the chain has what the books say, for every account and for the seller. Undefined when it does not answer. */
async function auditChain(database: Database, line: MoneyLine): Promise<readonly Violation[] | undefined> {
  const { seller } = line.terms
  const report = await openChain(chainOptions(line))
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
