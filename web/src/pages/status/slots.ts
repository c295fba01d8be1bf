import type { Standing } from '../../api/queries.ts'

const slotMs = 5 * 60_000
const slotsMax = 288

/** The last 24 hours, oldest first; `gap` where the service did not run. */
export function slotsOf<Slot extends { readonly start: string }>(
  history: readonly Slot[],
  read: (slot: Slot) => Standing,
  nowMs: number,
): readonly (Standing | 'gap')[] {
  const last = Math.floor(nowMs / slotMs)
  const known = new Map(history.map((slot) => [Math.floor(Date.parse(slot.start) / slotMs), read(slot)]))
  return Array.from({ length: slotsMax }, (_, at) => known.get(last - slotsMax + 1 + at) ?? 'gap')
}

/** How much of the time that it was used it worked. Cut, not rounded: one bad step is never 100 %. */
export function share(slots: readonly (Standing | 'gap')[]): string {
  const used = slots.filter((standing) => standing === 'working' || standing === 'failing')
  if (used.length === 0) return 'no data'
  const working = used.filter((standing) => standing === 'working').length
  const tenths = Math.floor((working * 1000) / used.length)
  return `${Math.floor(tenths / 10)}${tenths % 10 === 0 ? '' : `.${tenths % 10}`} %`
}
