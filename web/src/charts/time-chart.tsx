import { type KeyboardEvent, type PointerEvent, useId, useLayoutEffect, useRef, useState } from 'react'
import { type ChartKind, isBlank, isReadable } from './reading.ts'
import { bucketLabel, bucketName, type Granularity, labelledBuckets, ticks } from './scale.ts'

export type Bucket = { readonly start: string; readonly partial: boolean }
export type Series = {
  readonly id: string
  readonly label: string
  readonly colour: string
  /** One for each bucket. */
  readonly values: readonly (number | null)[]
}

type Props = {
  readonly label: string
  readonly kind: ChartKind
  readonly buckets: readonly Bucket[]
  readonly granularity: Granularity
  readonly series: readonly Series[]
  readonly format: (value: number) => string
  readonly formatAxis?: (value: number) => string
  readonly height?: number
  readonly onPick?: (bucket: Bucket) => void
}

const margin = { top: 8, right: 16, bottom: 24, left: 72 }

/**
 * Bars stacked in time, or lines. Pointer and arrow keys move one cursor over the buckets and read the same words: to
 * assistive software the chart is a slider over time whose value is what the tooltip says.
 */
export function TimeChart(props: Props) {
  const { label, kind, buckets, granularity, series, format, height = 220, onPick } = props
  const [frame, width] = useWidth()
  const [at, setAt] = useState<number>()
  const plot = { width: Math.max(width - margin.left - margin.right, 10), height: height - margin.top - margin.bottom }
  const step = plot.width / Math.max(buckets.length, 1)
  const reading = at === undefined ? undefined : readBucket(props, at)

  const onPointerMove = (event: PointerEvent) => {
    const box = event.currentTarget.getBoundingClientRect()
    const index = Math.floor((event.clientX - box.left - margin.left) / step)
    setAt(index >= 0 && index < buckets.length ? index : undefined)
  }
  const onKeyDown = (event: KeyboardEvent) => {
    const last = buckets.length - 1
    const now = at ?? last
    const next = { ArrowRight: now + 1, ArrowLeft: at === undefined ? last : now - 1, Home: 0, End: last }[event.key]
    if (next !== undefined) {
      event.preventDefault()
      setAt(Math.min(Math.max(next, 0), last))
    }
    if (event.key === 'Escape') setAt(undefined)
    if (event.key === 'Enter' && at !== undefined) onPick?.(buckets[at]!)
  }
  return (
    <div
      ref={frame}
      role="slider"
      tabIndex={0}
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={Math.max(buckets.length - 1, 0)}
      aria-valuenow={at ?? Math.max(buckets.length - 1, 0)}
      aria-valuetext={reading?.text ?? summary(props)}
      className="relative outline-offset-4"
      style={{ height }}
      onPointerMove={onPointerMove}
      onPointerLeave={() => setAt(undefined)}
      onKeyDown={onKeyDown}
      onBlur={() => setAt(undefined)}
      onClick={() => at !== undefined && onPick?.(buckets[at]!)}
    >
      {/* Absolute, so that the drawing does not widen its container. */}
      <svg width={width} height={height} aria-hidden="true" className="absolute inset-0">
        <Plot {...props} plot={plot} step={step} at={at} />
      </svg>
      {reading !== undefined && at !== undefined && (
        <Tip
          title={bucketName(buckets[at]!.start, granularity)}
          rows={reading.rows}
          x={margin.left + (at + 0.5) * step}
          width={width}
        />
      )}
      {isBlank(kind, series) && (
        <p className="absolute inset-0 grid place-items-center text-muted">No data in this range.</p>
      )}
      <span className="sr-only">{format(0)} is the baseline.</span>
    </div>
  )
}

function Plot({
  kind,
  buckets,
  granularity,
  series,
  formatAxis,
  format,
  plot,
  step,
  at,
}: Props & { plot: { width: number; height: number }; step: number; at: number | undefined }) {
  const patternId = useId()
  const highest = highestOf(kind, buckets.length, series)
  // Bars are sums of whole things: requests, tokens, atomic units. Lines are measured.
  const marks = ticks(highest, kind === 'bars' ? 1 : 0)
  const top = marks.at(-1)!
  const y = (value: number) => plot.height - (value / top) * plot.height
  return (
    <g transform={`translate(${margin.left},${margin.top})`}>
      <defs>
        {series.map(({ id, colour }, index) => (
          <pattern
            key={id}
            id={`${patternId}-${index}`}
            width="5"
            height="5"
            patternUnits="userSpaceOnUse"
            patternTransform="rotate(45)"
          >
            <rect width="5" height="5" fill={colour} opacity="0.25" />
            <rect width="2" height="5" fill={colour} />
          </pattern>
        ))}
      </defs>
      {marks.map((mark) => (
        <g key={mark} transform={`translate(0,${y(mark)})`}>
          <line x2={plot.width} stroke={mark === 0 ? 'var(--color-edge)' : 'var(--color-rule)'} />
          <text x={-8} dy="0.32em" textAnchor="end" fontSize="11" fill="var(--color-muted)" className="num">
            {(formatAxis ?? format)(mark)}
          </text>
        </g>
      ))}
      {labelledBuckets(buckets.length, plot.width).map((index) => (
        <text
          key={index}
          x={(index + 0.5) * step}
          y={plot.height + 16}
          textAnchor="middle"
          fontSize="11"
          fill="var(--color-muted)"
          className="tabular-nums"
        >
          {bucketLabel(buckets[index]!.start, granularity)}
        </text>
      ))}
      {at !== undefined && (
        <rect x={at * step} width={step} height={plot.height} fill="var(--color-ink)" opacity="0.06" />
      )}
      {kind === 'bars' ? (
        <Bars buckets={buckets} series={series} step={step} y={y} patternId={patternId} />
      ) : (
        series.map((one) => (
          <path
            key={one.id}
            d={linePath(one.values, step, y)}
            fill="none"
            stroke={one.colour}
            strokeWidth={1.5}
            strokeLinejoin="round"
          />
        ))
      )}
      {kind === 'lines' &&
        series.flatMap((one) =>
          loneDots(one.values).map((index) => (
            <circle
              key={`${one.id}-${index}`}
              cx={(index + 0.5) * step}
              cy={y(one.values[index]!)}
              r={3.5}
              fill={one.colour}
            />
          )),
        )}
    </g>
  )
}

type BarsProps = {
  readonly buckets: readonly Bucket[]
  readonly series: readonly Series[]
  readonly step: number
  readonly y: (value: number) => number
  readonly patternId: string
}

const barWidthMax = 48

function Bars({ buckets, series, step, y, patternId }: BarsProps) {
  const width = Math.max(Math.min(step - (step > 3 ? 1 : 0), barWidthMax), 1)
  return buckets.map(({ start, partial }, bucket) => {
    let below = 0
    return (
      <g
        key={start}
        transform={`translate(${bucket * step + (step - width) / 2},0)`}
        data-start={start}
        data-total={series.reduce((sum, { values }) => sum + (values[bucket] ?? 0), 0)}
      >
        {series.map((one, index) => {
          const value = one.values[bucket] ?? 0
          if (value <= 0) return null
          // One pixel of background between two parts of a bar; a part that is not zero is at least one pixel high.
          const height = Math.max(y(below) - y(below + value) - (below > 0 ? 1 : 0), 1)
          below += value
          const fill = partial ? `url(#${patternId}-${index})` : one.colour
          return <rect key={one.id} y={y(below)} width={width} height={height} fill={fill} />
        })}
      </g>
    )
  })
}

function linePath(values: readonly (number | null)[], step: number, y: (value: number) => number): string {
  let pen = false
  return values
    .map((value, at) => {
      if (value === null) {
        pen = false
        return ''
      }
      const command = pen ? 'L' : 'M'
      pen = true
      return `${command}${((at + 0.5) * step).toFixed(1)},${y(value).toFixed(1)}`
    })
    .join('')
}

/** A value with nothing on either side has no line: it is drawn as a dot. */
function loneDots(values: readonly (number | null)[]): number[] {
  return values.flatMap((value, at) =>
    value !== null && (values[at - 1] ?? null) === null && (values[at + 1] ?? null) === null ? [at] : [],
  )
}

type Row = { readonly label: string; readonly value: string; readonly colour?: string }

function readBucket({ kind, buckets, granularity, series, format }: Props, at: number): { rows: Row[]; text: string } {
  const rows: Row[] = series
    .filter(({ values }) => isReadable(kind, values[at]))
    .map(({ label, values, colour }) => ({ label, value: format(values[at]!), colour }))
    // The first row of the tooltip is the top of the stack.
    .reverse()
  if (kind === 'bars' && series.length > 1)
    rows.push({ label: 'Total', value: format(series.reduce((sum, { values }) => sum + (values[at] ?? 0), 0)) })
  if (rows.length === 0) rows.push({ label: 'No data', value: '' })
  const bucket = buckets[at]!
  const name = `${bucketName(bucket.start, granularity)}${bucket.partial ? ', in progress' : ''}`
  return { rows, text: `${name}: ${rows.map(({ label, value }) => `${label} ${value}`.trim()).join(', ')}` }
}

function summary({ buckets, series, format, kind }: Props): string {
  if (isBlank(kind, series)) return 'No data in this range'
  if (kind === 'lines') return `${buckets.length} points in time. Use the arrow keys to read them`
  const parts = series.map(
    ({ label, values }) => `${label} ${format(values.reduce<number>((sum, value) => sum + (value ?? 0), 0))}`,
  )
  return `${parts.join(', ')}. Use the arrow keys to read each point in time`
}

function highestOf(kind: Props['kind'], count: number, series: readonly Series[]): number {
  if (kind === 'lines') return Math.max(0, ...series.flatMap(({ values }) => values.map((value) => value ?? 0)))
  const sums = Array.from({ length: count }, (_, at) => series.reduce((sum, { values }) => sum + (values[at] ?? 0), 0))
  return Math.max(0, ...sums)
}

function Tip({ title, rows, x, width }: { title: string; rows: readonly Row[]; x: number; width: number }) {
  const onLeft = x > width / 2
  return (
    <div
      aria-hidden="true"
      className="pointer-events-none absolute top-2 z-10 max-w-64 rounded-md border border-edge bg-surface px-3 py-2 text-sm"
      style={onLeft ? { right: width - x + 12 } : { left: x + 12 }}
    >
      <p className="mb-1 font-medium whitespace-nowrap">{title}</p>
      {rows.map(({ label, value, colour }) => (
        <p key={label} className="flex items-center gap-2 whitespace-nowrap">
          {colour !== undefined && <span className="size-2 shrink-0" style={{ background: colour }} />}
          <span className="flex-1 truncate">{label}</span>
          <span className="num">{value}</span>
        </p>
      ))}
    </div>
  )
}

function useWidth(): [React.RefObject<HTMLDivElement | null>, number] {
  const frame = useRef<HTMLDivElement>(null)
  const [width, setWidth] = useState(0)
  // Measure before the first paint. A guessed width would overflow the page for one frame.
  useLayoutEffect(() => {
    setWidth(frame.current!.clientWidth)
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry!.contentRect.width)))
    observer.observe(frame.current!)
    return () => observer.disconnect()
  }, [])
  return [frame, width]
}
