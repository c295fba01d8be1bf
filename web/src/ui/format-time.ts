// Local time on the page, UTC in the title: the ledger's days are UTC days, the reader's are not.

const toTheSecond = { hour: '2-digit', minute: '2-digit', second: '2-digit' } as const
const clock = new Intl.DateTimeFormat('en-GB', toTheSecond)
const thisYear = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', ...toTheSecond })
const day = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', year: 'numeric' })
const anyYear = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', year: 'numeric', ...toTheSecond })

export function formatClock(date: Date): string {
  return clock.format(date)
}

export function formatDay(date: Date): string {
  return day.format(date)
}

/** Day and time, with the year if it is not this year in the reader’s time zone. */
export function formatMoment(date: Date, now: Date): string {
  return (date.getFullYear() === now.getFullYear() ? thisYear : anyYear).format(date)
}

export function utc(date: Date): string {
  return `${date
    .toISOString()
    .replace('T', ' ')
    .replace(/\.\d+Z$/, '')} UTC`
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

/** A latency: milliseconds as long as they are readable, then seconds, then hours and minutes. */
export function formatMs(ms: number | null): string {
  if (ms === null) return '–'
  const minutes = Math.round(ms / 60_000)
  if (minutes >= 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`
  if (minutes >= 2) return `${minutes} min`
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`
}
