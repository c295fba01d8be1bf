import { findFreeze, findViolations, invariants, unfreezeLedger } from '../ledger/audit.ts'
import { type Command, CommandError, printRows } from './command.ts'
import { withDatabase } from './with-database.ts'

export const auditCommand: Command = {
  summary: 'check the books: every invariant of the ledger, on every account',
  usage: `penny audit                       exit code 0 when the books are right, 1 when they are not
      --unfreeze                      take new requests again, once the books are right`,
  options: { unfreeze: { type: 'boolean' } },
  async run({ options, config, output }) {
    return withDatabase(config, async (database) => {
      const violations = await findViolations(database)
      const broken = new Set(violations.map(({ invariant }) => invariant))
      if (output.json)
        output.write(
          `${JSON.stringify({ ok: violations.length === 0, frozen: (await findFreeze(database)) ?? null, violations }, null, 2)}\n`,
        )
      else {
        printRows(
          output,
          invariants.map((invariant) => ({ invariant, state: broken.has(invariant) ? 'BROKEN' : 'holds' })),
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
