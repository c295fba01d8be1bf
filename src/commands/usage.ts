import { reportUsage, type UsageReportGroup, usageReportGroups } from '../ledger/usage-report.ts'
import { format } from '../money/usdc.ts'
import { type Command, CommandError } from './command.ts'
import { findLogin } from './login-file.ts'
import { printRemoteUsage, refuseRemote } from './remote.ts'
import { printRows } from './table.ts'
import { whichAccount } from './which-account.ts'
import { withDatabase } from './with-database.ts'

const daysDefault = 30
const daysMax = 3_660

export const usageCommand: Command = {
  usage: [
    ['penny usage', `Usage of all accounts by day, for the last ${daysDefault} days`],
    ['--by day|model|key|account', 'One or more, separated by commas'],
    ['--days N', 'Number of days'],
    ['--account ID|NAME', 'Only this account'],
  ],
  options: { by: { type: 'string' }, days: { type: 'string' }, account: { type: 'string' } },
  async run({ options, config, output }) {
    const groups = String(options.by ?? 'day').split(',') as UsageReportGroup[]
    if (!groups.every((group) => usageReportGroups.includes(group)))
      throw new CommandError(
        `--by must be some of ${usageReportGroups.join(', ')}, separated by commas, got "${options.by}".`,
        2,
      )
    const days = Number(options.days ?? daysDefault)
    if (!Number.isInteger(days) || days < 1 || days > daysMax)
      throw new CommandError(`--days must be a whole number from 1 to ${daysMax}, got "${options.days}".`, 2)
    const login = findLogin(config)
    if (login !== undefined) {
      if (groups.join() !== 'day') refuseRemote(login, 'group usage by anything but day', '/usage')
      return printRemoteUsage(login, days, output)
    }
    return withDatabase(config, async (database) => {
      const account = options.account === undefined ? undefined : await whichAccount(database, options.account)
      const rows = await reportUsage(database, { groups, days, accountId: account?.id })
      printRows(
        output,
        rows.map((row) => ({
          ...row.group,
          requests: row.requests,
          failed: row.failed,
          refused: row.refused,
          input_tokens: row.inputTokens,
          output_tokens: row.outputTokens,
          searches: row.searches,
          ...(output.json && { charged_atomic: row.charged.toString() }),
          charged: format(row.charged),
        })),
        { omit: ['searches', 'failed', 'refused'] },
      )
      return 0
    })
  },
}
