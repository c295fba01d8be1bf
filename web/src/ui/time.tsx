import { useEffect, useState } from 'react'
import { formatAge, formatClock, formatDay, formatMoment, utc } from './format-time.ts'

const formats = {
  moment: (date: Date) => formatMoment(date, new Date()),
  clock: formatClock,
  day: formatDay,
}

type TimeProps = { at: string; show?: 'moment' | 'clock' | 'day' | 'age' }

export function Time({ at, show = 'moment' }: TimeProps) {
  const date = new Date(at)
  return (
    <time dateTime={at} title={utc(date)} className="whitespace-nowrap tabular-nums">
      {show === 'age' ? <Age of={date} /> : formats[show](date)}
    </time>
  )
}

function Age({ of }: { of: Date }) {
  const now = useNow(1000)
  return formatAge(now - of.getTime())
}

/** The present, renewed at the given pace. */
export function useNow(everyMs: number): number {
  const [now, setNow] = useState(() => Date.now())
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), everyMs)
    return () => clearInterval(timer)
  }, [everyMs])
  return now
}
