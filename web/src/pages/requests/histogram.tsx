import { useQuery } from '@tanstack/react-query'
import { useMemo } from 'react'
import type { RequestFilter } from '../../api/queries.ts'
import { sessionQuery, usageQuery } from '../../api/queries.ts'
import { bucketSpan, granularityMs } from '../../charts/scale.ts'
import { TimeChart } from '../../charts/time-chart.tsx'
import { formatCount } from '../../money/format.ts'
import { statusColours } from '../usage/fold-series.ts'
import { fromWithinAccount } from '../usage/usage-range.ts'
import type { Filters } from './filters.ts'

/** Requests over time; choosing a bar narrows the range to it. Models, keys and status filter it, the other filters do not. */
export function Histogram({ filter, onRange }: { filter: RequestFilter; onRange: (range: Filters['range']) => void }) {
  const { data: session } = useQuery(sessionQuery)
  const createdAt = session?.account?.created_at
  const from = useMemo(() => {
    const nowMs = Date.now()
    return fromWithinAccount(
      filter.from === undefined ? nowMs - 30 * granularityMs.day : Date.parse(filter.from),
      nowMs,
      createdAt,
    )
  }, [filter.from, createdAt])
  const { data } = useQuery(
    usageQuery({
      group_by: 'status',
      from: filter.to === undefined ? from : (filter.from ?? from),
      ...(filter.to !== undefined && { to: filter.to }),
      ...(filter.model !== undefined && { model: filter.model }),
      ...(filter.key !== undefined && { key: filter.key }),
    }),
  )
  if (data === undefined) return <div className="h-[120px]" />
  const series = data.series
    .filter(({ group }) => group in statusColours && (filter.status === undefined || filter.status.includes(group)))
    .map(({ group, label, points }) => ({
      id: group,
      label,
      colour: statusColours[group]!,
      values: points.map(({ requests, refused }) => requests + refused),
    }))
  return (
    <TimeChart
      label="Requests over time"
      kind="bars"
      height={120}
      buckets={data.buckets}
      granularity={data.granularity}
      series={series}
      format={(value) => formatCount(Math.round(value))}
      onPick={(bucket) => onRange(bucketSpan(bucket, data.granularity))}
    />
  )
}
