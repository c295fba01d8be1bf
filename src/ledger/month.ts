/** A calendar month in UTC, as `2026-09`. */
export type Month = string & { readonly __brand: 'Month' }

/** Undefined when the text is not a month. */
export function parseMonth(text: string): Month | undefined {
  return /^20\d\d-(0[1-9]|1[0-2])$/.test(text) ? (text as Month) : undefined
}

export function startOfMonth(month: Month): Date {
  return new Date(`${firstDay(month)}T00:00:00Z`)
}

/** As PostgreSQL's `date`. */
export function firstDay(month: Month): string {
  return `${month}-01`
}

/** The first instant after the month. */
export function endOfMonth(month: Month): Date {
  const start = startOfMonth(month)
  return new Date(Date.UTC(start.getUTCFullYear(), start.getUTCMonth() + 1))
}

export function monthOf(instant: Date): Month {
  return instant.toISOString().slice(0, 7) as Month
}
