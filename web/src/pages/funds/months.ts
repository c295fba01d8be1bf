// Months are UTC's, like every day and hour of the ledger.

const name = new Intl.DateTimeFormat('en-GB', { month: 'long', year: 'numeric', timeZone: 'UTC' })

/** `2026-11` as people write it. */
export function monthName(month: string): string {
  return name.format(new Date(`${month}-01T00:00:00Z`))
}

/** Every month from the first to this one, newest first. */
export function monthsFrom(first: string, now: Date): readonly string[] {
  const months: string[] = []
  for (let at = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth())); ; at.setUTCMonth(at.getUTCMonth() - 1)) {
    const month = at.toISOString().slice(0, 7)
    months.push(month)
    if (month <= first) return months
  }
}
