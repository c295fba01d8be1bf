import type { Database } from '../db/database.ts'
import { fromAtomic, type Usdc } from '../money/usdc.ts'

export const usageReportGroups = ['day', 'model', 'key', 'account'] as const
export type UsageReportGroup = (typeof usageReportGroups)[number]

export type UsageReportLine = {
  /** The values of the requested groups, by name. */
  readonly group: Readonly<Partial<Record<UsageReportGroup, string>>>
  readonly requests: number
  readonly failed: number
  readonly refused: number
  readonly inputTokens: number
  readonly outputTokens: number
  readonly searches: number
  readonly charged: Usdc
}

const expressions: Readonly<Record<UsageReportGroup, string>> = {
  day: `to_char(u.hour at time zone 'UTC', 'YYYY-MM-DD')`,
  model: `case u.model when '' then '–' else u.model end`,
  key: `coalesce((select k.name || ' ' || k.hint from api_keys k where k.partition = u.partition and k.id = u.key_id), u.key_id::text)`,
  account: `coalesce((select a.name from accounts a where a.partition = u.partition and a.id = u.account_id), u.account_id::text)`,
}

const rowsMax = 10_000

/** Sums over whole hours, for the operator; of one account or of all. */
export async function reportUsage(
  database: Database,
  question: {
    readonly groups: readonly UsageReportGroup[]
    readonly days: number
    readonly accountId: string | undefined
  },
): Promise<readonly UsageReportLine[]> {
  const { groups, days, accountId } = question
  const rows = await database.query<UsageReportRow>(
    `select ${groups.map((group) => `${expressions[group]} as "group_${group}", `).join('')}
            sum(u.succeeded + u.failed + u.cancelled)::bigint as requests, sum(u.failed)::bigint as failed,
            sum(u.refused)::bigint as refused, sum(u.prompt_tokens)::bigint as input_tokens,
            sum(u.completion_tokens)::bigint as output_tokens, sum(u.search_calls)::bigint as searches,
            sum(u.charged)::bigint as charged
       from usage_hours u
      where u.hour >= date_trunc('day', clock_timestamp(), 'UTC') - ($1 - 1) * interval '1 day'
        and ($2::uuid is null or u.account_id = $2)
      group by ${groups.map((_, index) => index + 1).join(', ')} order by ${groups.map((_, index) => index + 1).join(', ')}
      limit ${rowsMax}`,
    [days, accountId ?? null],
  )
  return rows.map((row) => ({
    group: Object.fromEntries(groups.map((group) => [group, row[`group_${group}`] ?? ''])),
    requests: Number(row.requests),
    failed: Number(row.failed),
    refused: Number(row.refused),
    inputTokens: Number(row.input_tokens),
    outputTokens: Number(row.output_tokens),
    searches: Number(row.searches),
    charged: fromAtomic(row.charged),
  }))
}

type UsageReportRow = {
  readonly requests: bigint
  readonly failed: bigint
  readonly refused: bigint
  readonly input_tokens: bigint
  readonly output_tokens: bigint
  readonly searches: bigint
  readonly charged: bigint
} & { readonly [Group in `group_${UsageReportGroup}`]?: string }
