/** The course of a number, too small for an axis. What it shows is said by the number beside it. */
export function Sparkline({
  values,
  width = 96,
  height = 28,
}: {
  values: readonly (number | null)[]
  width?: number
  height?: number
}) {
  const known = values.map((value) => value ?? 0)
  const highest = Math.max(...known, 0)
  const step = width / Math.max(known.length - 1, 1)
  const y = (value: number) => height - 2 - (highest === 0 ? 0 : (value / highest) * (height - 4))
  const line = known
    .map((value, at) => `${at === 0 ? 'M' : 'L'}${(at * step).toFixed(1)},${y(value).toFixed(1)}`)
    .join('')
  return (
    <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} aria-hidden="true" className="shrink-0">
      <path d={line} fill="none" stroke="var(--muted)" strokeWidth={1.25} strokeLinejoin="round" />
    </svg>
  )
}
