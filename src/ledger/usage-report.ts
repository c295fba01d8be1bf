import type { Database } from '../db/database.ts'
import { OperatorError } from '../errors.ts'
import { fromAtomic, type Usdc } from '../money/usdc.ts'

export const usageReportGroups = ['day', 'model', 'key', 'account'] as const
export type UsageReportGroup = (typeof usageReportGroups)[number]

export type UsageReportLine = {
  /** The values of the requested groups, by column: of a key or an account its name and its id. */
  readonly group: Readonly<Record<string, string>>
  readonly requests: number
  readonly failed: number
  readonly refused: number
  readonly inputTokens: number
  readonly outputTokens: number
  readonly searches: number
  readonly charged: Usdc
}

/** Names need not be unique, so ids are part of a group. */
const columnsOf: Readonly<Record<UsageReportGroup, Readonly<Record<string, string>>>> = {
  day: { day: `to_char(u.hour at time zone 'UTC', 'YYYY-MM-DD')` },
  model: { model: `case u.model when '' then '–' else u.model end` },
  key: {
    key: `coalesce((select k.name || ' ' || k.hint from api_keys k where k.partition = u.partition and k.id = u.key_id), '')`,
    key_id: 'u.key_id::text',
  },
  account: {
    account: `coalesce((select a.name from accounts a where a.partition = u.partition and a.id = u.account_id), '')`,
    account_id: 'u.account_id::text',
  },
}

const rowsMax = 10_000

/** Sums over whole hours, for the operator; of one account or of all. @throws {ReportTooLongError} rather than leave lines out. */
export async function reportUsage(
  database: Database,
  question: {
    readonly groups: readonly UsageReportGroup[]
    readonly days: number
    readonly accountId: string | undefined
  },
): Promise<readonly UsageReportLine[]> {
  const { groups, days, accountId } = question
  const columns = groups.flatMap((group) => Object.entries(columnsOf[group]))
  const positions = columns.map((_, index) => index + 1).join(', ')
  const rows = await database.query<UsageReportRow>(
    `select ${columns.map(([name, expression]) => `${expression} as "group_${name}", `).join('')}
            sum(u.succeeded + u.failed + u.cancelled)::bigint as requests, sum(u.failed)::bigint as failed,
            sum(u.refused)::bigint as refused, sum(u.prompt_tokens)::bigint as input_tokens,
            sum(u.completion_tokens)::bigint as output_tokens, sum(u.search_calls)::bigint as searches,
            sum(u.charged)::bigint as charged
       from usage_hours u
      where u.hour >= date_trunc('day', clock_timestamp(), 'UTC') - ($1 - 1) * interval '1 day'
        and ($2::uuid is null or u.account_id = $2)
      group by ${positions} order by ${positions}
      limit ${rowsMax + 1}`,
    [days, accountId ?? null],
  )
  if (rows.length > rowsMax) throw new ReportTooLongError()
  return rows.map((row) => ({
    group: Object.fromEntries(columns.map(([name]) => [name, row[`group_${name}`] ?? ''])),
    requests: Number(row.requests),
    failed: Number(row.failed),
    refused: Number(row.refused),
    inputTokens: Number(row.input_tokens),
    outputTokens: Number(row.output_tokens),
    searches: Number(row.searches),
    charged: fromAtomic(row.charged),
  }))
}

class ReportTooLongError extends OperatorError {
  constructor() {
    super(`The report has more than ${rowsMax} lines. Ask for fewer days, for one account, or group by less.`)
  }
}

type UsageReportRow = {
  readonly requests: bigint
  readonly failed: bigint
  readonly refused: bigint
  readonly input_tokens: bigint
  readonly output_tokens: bigint
  readonly searches: bigint
  readonly charged: bigint
} & { readonly [column: `group_${string}`]: string }
