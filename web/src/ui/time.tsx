import { useEffect, useState } from 'react'

// Local time on the page, UTC in the title: the ledger's days are UTC days, the reader's are not.

const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' })
const dayAndClock = new Intl.DateTimeFormat('en-GB', {
  day: 'numeric',
  month: 'short',
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
})
const day = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', year: 'numeric' })

type TimeProps = { at: string; show?: 'moment' | 'clock' | 'day' | 'age' }

export function Time({ at, show = 'moment' }: TimeProps) {
  const date = new Date(at)
  return (
    <time dateTime={at} title={utc(date)} className="whitespace-nowrap tabular-nums">
      {show === 'age' ? <Age of={date} /> : { moment: dayAndClock, clock, day }[show].format(date)}
    </time>
  )
}

export function utc(date: Date): string {
  return `${date
    .toISOString()
    .replace('T', ' ')
    .replace(/\.\d+Z$/, '')} UTC`
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

/** `just now`, `12 s ago`, `4 min ago`, `3 h ago`, `9 d ago`. */
export function formatAge(ms: number): string {
  return ms < 2000 ? 'just now' : `${formatSpan(ms)} ago`
}

export function formatSpan(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000))
  if (seconds < 90) return `${seconds} s`
  if (seconds < 90 * 60) return `${Math.round(seconds / 60)} min`
  if (seconds < 36 * 3600) return `${Math.round(seconds / 3600)} h`
  return `${Math.round(seconds / 86_400)} d`
}

/** A latency: milliseconds as long as they are readable, then seconds. */
export function formatMs(ms: number | null): string {
  if (ms === null) return '–'
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`
}
