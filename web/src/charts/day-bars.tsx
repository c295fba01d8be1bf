import { formatAmount, formatAxis } from '../money/format.ts'
import { TimeChart } from './time-chart.tsx'

/** How a chart writes amounts, which it has as numbers of atomic units for drawing alone. */
export const amounts = {
  format: (value: number) => formatAmount(BigInt(Math.round(value))),
  formatAxis: (value: number) => formatAxis(BigInt(Math.round(value))),
}

type Props = { label: string; days: readonly (readonly [day: string, atomic: string])[]; height: number }

/** An amount for each day (UTC). The present day is not over. */
export function DayBars({ label, days, height }: Props) {
  const today = new Date().toISOString().slice(0, 10)
  return (
    <TimeChart
      label={label}
      kind="bars"
      height={height}
      granularity="day"
      buckets={days.map(([day]) => ({ start: `${day}T00:00:00Z`, partial: day === today }))}
      series={[{ id: 'amount', label, colour: 'var(--series-1)', values: days.map(([, atomic]) => Number(atomic)) }]}
      {...amounts}
    />
  )
}
