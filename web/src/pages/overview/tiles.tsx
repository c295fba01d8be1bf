import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Overview } from '../../api/shapes.ts'
import { atomic, formatAmount, formatCompact, formatCount, formatExact, formatPercent } from '../../money/format.ts'
import { formatMs } from '../../ui/format-time.ts'

/** The five numbers of the first page, each with its trend, its change and the page that explains it. */
export function Tiles({ overview, range }: { overview: Overview; range: Overview['range'] }) {
  const { spend, requests, refused, prompt_tokens, completion_tokens, error_rate, total_ms_p95 } = overview.tiles
  const spent = atomic(spend.value_atomic)
  const search = { range }
  return (
    <dl className="grid grid-cols-2 gap-px overflow-hidden rounded-md border border-rule bg-rule md:grid-cols-6 xl:grid-cols-5">
      <Tile
        label="Spend"
        to="/usage"
        search={search}
        value={<span title={formatExact(spent)}>{formatAmount(spent)}</span>}
        change={change(Number(spent), Number(spend.previous_atomic))}
        course={spend.sparkline_atomic.map(Number)}
      />
      <Tile
        label="Requests"
        to="/requests"
        search={search}
        value={formatCount(requests.value ?? 0)}
        change={refused.value ? `${formatCount(refused.value)} refused` : change(requests.value, requests.previous)}
        course={requests.sparkline}
      />
      <Tile
        label="Tokens in / out"
        to="/usage"
        search={search}
        hash="tokens"
        value={
          <>
            {formatCompact(prompt_tokens.value ?? 0)} <span className="text-muted">/</span>{' '}
            {formatCompact(completion_tokens.value ?? 0)}
          </>
        }
        change={change(
          sum(prompt_tokens.value, completion_tokens.value),
          sum(prompt_tokens.previous, completion_tokens.previous),
        )}
        course={prompt_tokens.sparkline.map((value, at) => sum(value, completion_tokens.sparkline[at] ?? null))}
      />
      <Tile
        label="Error rate"
        to="/requests"
        search={{ ...search, status: 'failed,refused' }}
        value={sum(requests.value, refused.value) === 0 ? '–' : formatPercent(error_rate.value ?? 0)}
        change={pointsChange(error_rate.value, error_rate.previous)}
        course={error_rate.sparkline}
      />
      <Tile
        label="p95 latency"
        to="/usage"
        search={search}
        hash="latency"
        value={formatMs(total_ms_p95.value)}
        change={change(total_ms_p95.value, total_ms_p95.previous)}
        course={total_ms_p95.sparkline}
      />
    </dl>
  )
}

type TileProps = {
  label: string
  to: string
  search: Record<string, string>
  hash?: string
  value: ReactNode
  change: string
  course: readonly (number | null)[]
}

function Tile({ label, to, search, hash, value, change: changed, course }: TileProps) {
  return (
    <div className="relative flex flex-col gap-1 bg-surface p-4 hover:bg-sunken last:max-md:col-span-2 md:max-xl:col-span-2 md:max-xl:nth-[n+4]:col-span-3 has-focus-visible:outline-2 has-focus-visible:-outline-offset-2 has-focus-visible:outline-link">
      <dt className="text-sm text-muted">
        {/* The whole tile is the link; its name is the label. */}
        <Link
          to={to}
          search={search as never}
          {...(hash !== undefined && { hash })}
          className="outline-none after:absolute after:inset-0"
        >
          {label}
        </Link>
      </dt>
      <dd className="num text-xl font-medium tracking-tight">{value}</dd>
      <dd className="flex items-end justify-between gap-2">
        <span className="text-sm text-muted" title="Compared with the same span of time before">
          {changed}
        </span>
        <Sparkline values={course} />
      </dd>
    </div>
  )
}

const sparkWidth = 72
const sparkHeight = 24

/** A sparkline without an axis. The number next to it is its text alternative. */
function Sparkline({ values }: { values: readonly (number | null)[] }) {
  const known = values.map((value) => value ?? 0)
  const highest = Math.max(...known, 0)
  const step = sparkWidth / Math.max(known.length - 1, 1)
  const y = (value: number) => sparkHeight - 2 - (highest === 0 ? 0 : (value / highest) * (sparkHeight - 4))
  const line = known
    .map((value, at) => `${at === 0 ? 'M' : 'L'}${(at * step).toFixed(1)},${y(value).toFixed(1)}`)
    .join('')
  return (
    <svg
      width={sparkWidth}
      height={sparkHeight}
      viewBox={`0 0 ${sparkWidth} ${sparkHeight}`}
      aria-hidden="true"
      className="shrink-0"
    >
      <path d={line} fill="none" stroke="var(--color-muted)" strokeWidth={1.25} strokeLinejoin="round" />
    </svg>
  )
}

/** The change from the previous time span in percent, as text. */
export function change(value: number | null, previous: number | null): string {
  if (value === null || previous === null || previous === 0) return value ? 'new' : ''
  const percentage = Math.round(((value - previous) / previous) * 100)
  if (percentage === 0) return 'no change'
  return percentage > 0 ? `+${percentage} % vs before` : `−${-percentage} % vs before`
}

function pointsChange(value: number | null, previous: number | null): string {
  if (value === null) return ''
  const points = Math.round(((value ?? 0) - (previous ?? 0)) * 1000) / 10
  if (points === 0) return 'no change'
  return `${points > 0 ? '+' : '−'}${Math.abs(points)} points`
}

function sum(left: number | null, right: number | null): number {
  return (left ?? 0) + (right ?? 0)
}
