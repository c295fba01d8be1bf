import { Link, useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import type { Usage } from '../../api/shapes.ts'
import { type ChartKind, hasReading } from '../../charts/reading.ts'
import { bucketName, bucketSpan } from '../../charts/scale.ts'
import { type Series, TimeChart } from '../../charts/time-chart.tsx'
import { Button } from '../../ui/button.tsx'
import { classNames } from '../../ui/class-names.ts'
import { downloadCsv } from '../../ui/csv.ts'
import { Panel } from '../../ui/panel.tsx'
import { Table } from '../../ui/table.tsx'

type Props = {
  id: string
  title: string
  kind: ChartKind
  usage: Usage
  series: readonly Series[]
  format: (value: number) => string
  formatAxis?: (value: number) => string
  /** The sum of a series over the range, for its chip; lines have none. */
  totals?: boolean
}

/** A chart, its legend that filters it, and the same numbers as a table and as a file. */
export function ChartPanel({ id, title, kind, usage, series, format, formatAxis, totals = true }: Props) {
  const navigate = useNavigate()
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set())
  const [asTable, setAsTable] = useState(false)
  const shown = series.filter((one) => !hidden.has(one.id))
  const toggle = (one: string) =>
    setHidden((now) => new Set(now.has(one) ? [...now].filter((other) => other !== one) : [...now, one]))
  return (
    <section id={id} className="scroll-mt-16">
      <Panel
        title={title}
        actions={
          <>
            <Button small variant="quiet" aria-pressed={asTable} onClick={() => setAsTable(!asTable)}>
              {asTable ? 'View as chart' : 'View as table'}
            </Button>
            <Button
              small
              variant="quiet"
              icon="download"
              onClick={() => downloadCsv(`${id}.csv`, csvRows(usage, series))}
            >
              CSV
            </Button>
            <Link
              to="/requests"
              search={{ from: usage.from, to: usage.to } as never}
              className="inline-flex h-7 items-center rounded-md px-2 text-sm font-medium text-muted hover:bg-sunken hover:text-ink"
            >
              View requests
            </Link>
          </>
        }
      >
        {asTable ? (
          <ChartTable title={title} kind={kind} usage={usage} series={shown} format={format} />
        ) : (
          <TimeChart
            label={title}
            kind={kind}
            buckets={usage.buckets}
            granularity={usage.granularity}
            series={shown}
            format={format}
            onPick={(bucket) =>
              void navigate({ to: '/requests', search: bucketSpan(bucket, usage.granularity) as never })
            }
            {...(formatAxis !== undefined && { formatAxis })}
          />
        )}
        {series.length > 0 && (
          <ul className="mt-3 flex flex-wrap gap-2">
            {series.map((one) => (
              <li key={one.id} className="max-w-full">
                <button
                  type="button"
                  aria-pressed={!hidden.has(one.id)}
                  onClick={() => toggle(one.id)}
                  className={classNames(
                    'flex h-7 max-w-full items-center gap-2 rounded-md border border-rule px-2 text-sm hover:border-edge',
                    hidden.has(one.id) && 'text-muted line-through',
                  )}
                >
                  <span className="size-2 shrink-0" style={{ background: one.colour }} aria-hidden="true" />
                  <span className="truncate">{one.label}</span>
                  {totals && <span className="num text-muted">{format(sum(one.values))}</span>}
                </button>
              </li>
            ))}
          </ul>
        )}
      </Panel>
    </section>
  )
}

function ChartTable({
  title,
  kind,
  usage,
  series,
  format,
}: Pick<Props, 'title' | 'kind' | 'usage' | 'series' | 'format'>) {
  const rows = usage.buckets.map(({ start }, at) => ({ start, at })).filter(({ at }) => hasReading(kind, series, at))
  if (rows.length === 0) return <p className="py-12 text-center text-muted">No data in this range.</p>
  return (
    <div className="max-h-96 overflow-y-auto">
      <Table
        label={title}
        rows={rows}
        rowKey={({ start }) => start}
        columns={[
          { head: 'Time', cell: ({ start }) => bucketName(start, usage.granularity) },
          ...series.map((one) => ({
            id: one.id,
            head: one.label,
            right: true,
            cell: ({ at }: { at: number }) => (one.values[at] === null ? '–' : format(one.values[at] ?? 0)),
          })),
        ]}
      />
    </div>
  )
}

function csvRows(usage: Usage, series: readonly Series[]): string[][] {
  return [
    ['start', ...series.map(({ label }) => label)],
    ...usage.buckets.map(({ start }, at) => [start, ...series.map(({ values }) => String(values[at] ?? ''))]),
  ]
}

function sum(values: readonly (number | null)[]): number {
  return values.reduce<number>((total, value) => total + (value ?? 0), 0)
}
