import { useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useMemo, useState } from 'react'
import { modelsQuery, sessionQuery, usageQuery } from '../../api/queries.ts'
import type { Measures, Usage } from '../../api/shapes.ts'
import { amounts } from '../../charts/day-bars.tsx'
import { atomic, formatCharge, formatCompact, formatCount, formatPercent } from '../../money/format.ts'
import { Page, useScrollToHash } from '../../shell/page.tsx'
import { Button } from '../../ui/button.tsx'
import { downloadCsv } from '../../ui/csv.ts'
import { Segmented, Select, TextField } from '../../ui/field.tsx'
import { formatMs } from '../../ui/format-time.ts'
import { Icon } from '../../ui/icon.tsx'
import { Loaded } from '../../ui/loaded.tsx'
import { Popover } from '../../ui/menu.tsx'
import { Panel } from '../../ui/panel.tsx'
import { numbers, Table } from '../../ui/table.tsx'
import { useNow } from '../../ui/time.tsx'
import { ChartPanel } from './chart-panel.tsx'
import { colouredGroups, foldSeries, spendOf, statusColours } from './fold-series.ts'
import { parseUsageRange, presets, spanNote, spanRenewMs, type UsageRange, usageSpan } from './usage-range.ts'

const groups = [
  ['model', 'By model'],
  ['key', 'By key'],
  ['component', 'By inference and search'],
  ['status', 'By status'],
] as const
type Group = (typeof groups)[number][0]

export function UsagePage() {
  const search = useSearch({ strict: false }) as Record<string, string>
  const navigate = useNavigate()
  const range = useMemo(() => parseUsageRange(search), [search])
  const group = groups.find(([one]) => one === search.group)?.[0] ?? 'model'
  const { data: session } = useQuery(sessionQuery)
  const createdAt = session?.account?.created_at
  const nowMs = useNow(spanRenewMs)
  const span = useMemo(() => usageSpan(range, nowMs, createdAt), [range, nowMs, createdAt])
  const usage = useQuery(usageQuery({ ...span, group_by: group }))
  const timing = useQuery(usageQuery({ ...span, latency: 'true' }))
  const set = (next: UsageRange, nextGroup: Group) => {
    const where = typeof next === 'string' ? { range: next } : next
    // Days change one field at a time: one entry in the history is enough.
    const replace = typeof range !== 'string' && typeof next !== 'string'
    void navigate({ to: '/usage', search: { ...where, group: nextGroup } as never, replace })
  }
  useScrollToHash(usage.data !== undefined)
  const note = usage.data && spanNote(range, usage.data.from, usage.data.granularity, nowMs)
  return (
    <Page
      title="Usage"
      lead={`${note === undefined ? '' : `${note}. `}Days are UTC days, as in the ledger. Hours and minutes are in your time zone.`}
      actions={
        <>
          <Segmented
            label="Range"
            value={typeof range === 'string' ? range : 'custom'}
            options={typeof range === 'string' ? presets : [...presets, ['custom', 'Custom'] as const]}
            onChange={(next) => next !== 'custom' && set(next, group)}
          />
          <CustomRange range={range} onChange={(next) => set(next, group)} />
          <Select
            aria-label="Group"
            className="w-auto!"
            value={group}
            options={groups}
            onChange={(next) => set(range, next)}
          />
        </>
      }
    >
      <Loaded query={usage} skeleton={<div className="skeleton h-72" />}>
        {(data) => <GroupedCharts usage={data} />}
      </Loaded>
      <Loaded query={timing} skeleton={<div className="skeleton h-72" />}>
        {(data) => <TimingCharts usage={data} />}
      </Loaded>
      {usage.data !== undefined && <Breakdown usage={usage.data} group={group} />}
    </Page>
  )
}

const whole = (value: number) => formatCount(Math.round(value))

const requestsOf = ({ requests }: Measures) => requests
/** Refused ones are a group of their own by status; in any other group they are not counted as requests. */
const attemptsOf = ({ requests, refused }: Measures) => requests + refused

function GroupedCharts({ usage }: { usage: Usage }) {
  const countOf = usage.group_by === 'status' ? attemptsOf : requestsOf
  const { data: models } = useQuery(modelsQuery)
  const order = models?.data.map(({ id }) => id)
  const coloured = colouredGroups(usage.series, [spendOf, countOf], order)
  const colours = usage.group_by === 'status' ? statusColours : {}
  const spend = foldSeries(usage.series, spendOf, coloured, colours)
  const requests = foldSeries(usage.series, countOf, coloured, colours)
  return (
    <>
      <ChartPanel id="spend" title="Spend" kind="bars" usage={usage} series={spend} {...amounts} />
      <div className="grid grid-cols-1 items-start gap-6 lg:grid-cols-2">
        <ChartPanel id="requests" title="Requests" kind="bars" usage={usage} series={requests} format={whole} />
        <ChartPanel
          id="tokens"
          title="Tokens"
          kind="bars"
          usage={usage}
          series={tokenSeries(usage)}
          format={whole}
          formatAxis={formatCompact}
        />
      </div>
    </>
  )
}

/** Reasoning is part of output and cached of input: drawn apart, so that the stack is the whole. In shades of ink: colours are models. */
function tokenSeries({ buckets }: Usage) {
  const kinds: readonly (readonly [string, string, (total: Measures) => number])[] = [
    ['input', 'Input', (total) => total.prompt_tokens - total.cached_tokens],
    ['cached', 'Cached input', (total) => total.cached_tokens],
    ['output', 'Output', (total) => total.completion_tokens - total.reasoning_tokens],
    ['reasoning', 'Reasoning', (total) => total.reasoning_tokens],
  ]
  return kinds
    .map(([id, label, measure], at) => ({
      id,
      label,
      colour: `color-mix(in oklab, var(--color-ink) ${[75, 50, 30, 15][at]}%, var(--color-surface))`,
      values: buckets.map(({ total }) => measure(total)),
    }))
    .filter(({ values }) => values.some((value) => value > 0))
}

function TimingCharts({ usage }: { usage: Usage }) {
  const line = (label: string, at: number, measure: (total: Measures) => number | null) => ({
    id: label,
    label,
    colour: `var(--series-${at})`,
    values: usage.buckets.map(({ total }) => measure(total)),
  })
  const percentiles = (of: 'total_ms' | 'first_token_ms') => [
    line('p50', 1, ({ latency }) => latency?.[`${of}_p50` as const] ?? null),
    line('p95', 3, ({ latency }) => latency?.[`${of}_p95` as const] ?? null),
  ]
  const charts = [
    ['latency', 'Latency', formatMs, percentiles('total_ms')],
    ['first-token', 'Time to first token', formatMs, percentiles('first_token_ms')],
    ['errors', 'Error rate', formatPercent, [line('Failed or refused', 3, errorRatio)]],
    ['refunds', 'Unused share of quotes', formatPercent, [line('Share of the quote returned', 1, refundRatio)]],
  ] as const
  return (
    <div className="grid grid-cols-1 items-start gap-6 lg:grid-cols-2">
      {charts.map(([id, title, format, series]) => (
        <ChartPanel
          key={id}
          id={id}
          title={title}
          kind="lines"
          usage={usage}
          series={series}
          format={format}
          totals={false}
        />
      ))}
    </div>
  )
}

function errorRatio({ requests, failed, refused }: Measures): number | null {
  return requests + refused === 0 ? null : (failed + refused) / (requests + refused)
}

function refundRatio({ quote_atomic, spend_atomic }: Measures): number | null {
  const quote = Number(quote_atomic)
  return quote === 0 ? null : Math.max(0, (quote - Number(spend_atomic)) / quote)
}

const sums = [
  numbers('Requests', ({ total }: { total: Measures }) => formatCount(total.requests)),
  numbers('Refused', ({ total }: { total: Measures }) => formatCount(total.refused)),
  numbers('Tokens in', ({ total }: { total: Measures }) => formatCount(total.prompt_tokens)),
  numbers('Tokens out', ({ total }: { total: Measures }) => formatCount(total.completion_tokens)),
  numbers('Searches', ({ total }: { total: Measures }) => formatCount(total.search_calls)),
  numbers('Spend', ({ total }: { total: Measures }) => formatCharge(atomic(total.spend_atomic))),
]

/** The sums behind the charts. Its last line is the ledger's sum of the range, to the atomic unit. */
function Breakdown({ usage, group }: { usage: Usage; group: Group }) {
  const { total } = usage
  const rows = [...usage.series].sort((left, right) =>
    Number(BigInt(right.total.spend_atomic) - BigInt(left.total.spend_atomic)),
  )
  const heads = { model: 'Model', key: 'Key', component: 'Component', status: 'Status' }
  const csv = () =>
    downloadCsv('usage.csv', [
      [group, 'requests', 'refused', 'prompt_tokens', 'completion_tokens', 'search_calls', 'spend_atomic', 'spend'],
      ...rows.map(({ label, total: one }) => [
        label,
        String(one.requests),
        String(one.refused),
        String(one.prompt_tokens),
        String(one.completion_tokens),
        String(one.search_calls),
        one.spend_atomic,
        one.spend,
      ]),
    ])
  return (
    <div data-testid="usage-table" data-spend={total.spend_atomic}>
      <Panel
        flush
        title="Totals"
        actions={
          <Button small variant="quiet" icon="download" onClick={csv}>
            CSV
          </Button>
        }
      >
        <Table
          label="Totals for this range"
          rows={rows}
          rowKey={(row) => row.group}
          columns={[{ head: heads[group], cell: ({ label }) => label || 'None' }, ...sums]}
          footer={['Total', ...sums.map(({ cell }) => cell({ total }))]}
        />
      </Panel>
    </div>
  )
}

type RangeProps = { range: UsageRange; onChange: (range: UsageRange) => void }

function CustomRange(props: RangeProps) {
  return (
    <Popover
      label="Choose days"
      align="right"
      buttonClassName="inline-flex h-8 items-center gap-2 rounded-md border border-edge bg-surface px-3 hover:bg-sunken"
      button={
        <>
          Days <Icon name="chevron" size={14} />
        </>
      }
    >
      {() => <DayFields {...props} />}
    </Popover>
  )
}

/** Changes the page only when both fields contain a whole day, not while one is typed. */
function DayFields({ range, onChange }: RangeProps) {
  const today = new Date().toISOString().slice(0, 10)
  const [typed, setTyped] = useState(typeof range === 'string' ? { from: today, to: today } : range)
  const change = (next: typeof typed) => {
    setTyped(next)
    const parsed = parseUsageRange(next)
    if (typeof parsed !== 'string') onChange(parsed)
  }
  return (
    <div className="flex w-56 flex-col gap-3 p-2">
      <TextField
        label="From (UTC)"
        type="date"
        max={typed.to}
        value={typed.from}
        onChange={(from) => change({ ...typed, from })}
      />
      <TextField
        label="To (inclusive)"
        type="date"
        min={typed.from}
        max={today}
        value={typed.to}
        onChange={(to) => change({ ...typed, to })}
      />
    </div>
  )
}
