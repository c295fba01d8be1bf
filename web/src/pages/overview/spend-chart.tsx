import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { useMemo } from 'react'
import { modelsQuery, sessionQuery, usageQuery } from '../../api/queries.ts'
import type { Overview } from '../../api/shapes.ts'
import { amounts } from '../../charts/day-bars.tsx'
import { bucketSpan } from '../../charts/scale.ts'
import { TimeChart } from '../../charts/time-chart.tsx'
import { Loaded } from '../../ui/loaded.tsx'
import { Panel } from '../../ui/panel.tsx'
import { useNow } from '../../ui/time.tsx'
import { colouredGroups, foldSeries, spendOf } from '../usage/fold-series.ts'
import { spanNote, spanRenewMs, usageSpan } from '../usage/usage-range.ts'

const height = 180

/**
 * Spend over the range of the tiles, by model. For a new account the range begins with the account. A
 * click on a bar opens its requests.
 */
export function SpendChart({ range }: { range: Overview['range'] }) {
  const navigate = useNavigate()
  const { data: session } = useQuery(sessionQuery)
  const createdAt = session?.account?.created_at
  const nowMs = useNow(spanRenewMs)
  const span = useMemo(() => usageSpan(range, nowMs, createdAt), [range, nowMs, createdAt])
  const usage = useQuery(usageQuery({ ...span, group_by: 'model' }))
  const { data: models } = useQuery(modelsQuery)
  const note = usage.data && spanNote(range, usage.data.from, usage.data.granularity, nowMs)
  return (
    <Panel
      title="Spend by model"
      testId="spend-chart"
      actions={
        <>
          {note !== undefined && <span className="text-sm text-muted">{note}</span>}
          <Link to="/usage" search={{ range } as never} className="text-sm link">
            Usage
          </Link>
        </>
      }
    >
      <Loaded query={usage} skeleton={<div className="skeleton" style={{ height }} />}>
        {(data) => {
          const order = models?.data.map(({ id }) => id)
          const series = foldSeries(data.series, spendOf, colouredGroups(data.series, [spendOf], order))
          return (
            <>
              <TimeChart
                label="Spend by model"
                kind="bars"
                height={height}
                buckets={data.buckets}
                granularity={data.granularity}
                series={series}
                {...amounts}
                onPick={(bucket) =>
                  void navigate({ to: '/requests', search: bucketSpan(bucket, data.granularity) as never })
                }
              />
              <ul className="mt-2 flex flex-wrap gap-x-4 gap-y-1 text-sm text-muted">
                {series.map(({ id, label, colour }) => (
                  <li key={id} className="flex items-center gap-1.5">
                    <span className="size-2" style={{ background: colour }} aria-hidden="true" />
                    {label}
                  </li>
                ))}
              </ul>
            </>
          )
        }}
      </Loaded>
    </Panel>
  )
}
