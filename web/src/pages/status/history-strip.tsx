import type { Standing } from '../../api/queries.ts'
import type { Answer } from '../../api/shapes.ts'
import { share, slotsOf } from './slots.ts'

export type Slot = Omit<Answer<'GET /api/status'>['history'][number], 'start'>

const colours: Readonly<Record<Standing | 'gap', string>> = {
  working: 'var(--color-accent)',
  failing: 'var(--color-error)',
  unused: 'var(--color-rule)',
  off: 'var(--color-rule)',
  gap: 'transparent',
}

/** One part over the last day: a bar for each five minutes. Assistive software reads a percentage. */
export function HistoryStrip({
  name,
  history,
  read,
}: {
  name: string
  history: Answer<'GET /api/status'>['history']
  read: (slot: Slot) => Standing
}) {
  const slots = slotsOf(history, read, Date.now())
  const text = share(slots)
  return (
    <span className="flex items-center gap-3">
      <svg
        role="img"
        aria-label={`${name}, last 24 hours: ${text}`}
        viewBox={`0 0 ${slots.length} 20`}
        preserveAspectRatio="none"
        className="h-5 min-w-0 flex-1 rounded-sm bg-sunken"
      >
        {slots.map((standing, at) =>
          standing === 'gap' ? null : (
            // biome-ignore lint/suspicious/noArrayIndexKey: a slot is its place.
            <rect key={at} x={at} width={1} height={20} fill={colours[standing]} />
          ),
        )}
      </svg>
      <span className="num w-20 text-right text-sm text-muted">{text}</span>
    </span>
  )
}
