import type { AnswerOf } from '../openapi/contract.ts'
import { usageContracts } from '../openapi/contracts/usage.ts'
import { accountOption, accountUsage, findClient } from './client.ts'
import { type Command, CommandError } from './command.ts'
import { printRows } from './table.ts'

type Usage = AnswerOf<typeof usageContracts.getUsage>

const daysDefault = 30
const dayMs = 86_400_000

/** What the API groups by, and the lines of its answer: their first columns, and their sums. */
const groups = {
  day: {
    group_by: 'none',
    linesOf: ({ buckets }: Usage) =>
      buckets
        .filter(({ total }) => total.requests + total.refused > 0)
        .map(({ start, total }) => ({ group: { day: start.slice(0, 10) }, total })),
  },
  model: {
    group_by: 'model',
    linesOf: ({ series }: Usage) => series.map(({ label, total }) => ({ group: { model: label }, total })),
  },
  key: {
    group_by: 'key',
    linesOf: ({ series }: Usage) =>
      series.map(({ label, group: id, total }) => ({ group: { key: label, key_id: id }, total })),
  },
} as const

export const usageCommand: Command = {
  usage: [
    ['penny usage', `Usage of an account by day (UTC), for the last ${daysDefault} days`],
    ['--by day|model|key', 'What to group by'],
    ['--days N', 'Number of days'],
    ...accountUsage,
  ],
  options: { ...accountOption, by: { type: 'string' }, days: { type: 'string' } },
  async run(invocation) {
    const { options, output } = invocation
    const by = String(options.by ?? 'day')
    if (!Object.hasOwn(groups, by))
      throw new CommandError(`--by must be one of ${Object.keys(groups).join(', ')}, got "${by}".`, 2)
    const days = Number(options.days ?? daysDefault)
    if (!Number.isInteger(days) || days < 1)
      throw new CommandError(`--days must be a whole number above 0, got "${options.days}".`, 2)
    const { group_by, linesOf } = groups[by as keyof typeof groups]
    const from = new Date((Math.floor(Date.now() / dayMs) - days + 1) * dayMs).toISOString()
    const usage = await findClient(invocation).call(usageContracts.getUsage, {
      query: { from, granularity: 'day', group_by },
    })
    const rows = linesOf(usage).map(({ group, total }) => ({
      ...group,
      requests: total.requests,
      failed: total.failed,
      refused: total.refused,
      input_tokens: total.prompt_tokens,
      output_tokens: total.completion_tokens,
      searches: total.search_calls,
      ...(output.json && { charged_atomic: total.spend_atomic }),
      charged: total.spend,
    }))
    printRows(output, rows, { omit: ['searches', 'failed', 'refused'] })
    return 0
  },
}
