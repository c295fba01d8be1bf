import type { LedgerRequest } from '../api/shapes.ts'
import { classNames } from './class-names.ts'
import { Icon, type IconName } from './icon.tsx'

/** The state of a payment or request: always icon, word and colour together. */
export type Mark = 'held' | 'charged' | 'refunded' | 'failed' | 'settled' | 'pending' | 'cancelled' | 'refused'

const marks: Readonly<Record<Mark, readonly [icon: IconName, word: string, colour: string]>> = {
  held: ['held', 'Held', 'text-held'],
  charged: ['charged', 'Charged', 'text-ink'],
  refunded: ['refunded', 'Refunded', 'text-accent'],
  failed: ['cross', 'Failed', 'text-error'],
  settled: ['check', 'Settled', 'text-accent'],
  pending: ['held', 'Pending', 'text-held'],
  cancelled: ['stopped', 'Cancelled', 'text-muted'],
  refused: ['cross', 'Refused', 'text-(--series-3)'],
}

export function StateMark({ mark, word }: { mark: Mark; word?: string }) {
  const [icon, usual, colour] = marks[mark]
  return (
    <span className={classNames('inline-flex items-start gap-1.5', colour)}>
      <Icon name={icon} size={14} className="mt-[3px] shrink-0" />
      {word ?? usual}
    </span>
  )
}

/** The mark of a request's status in the ledger. */
export function RequestMark({ status }: { status: LedgerRequest['status'] }) {
  const [mark, word] = requestMarks[status]
  return (
    <span className="inline-flex whitespace-nowrap">
      <StateMark mark={mark} word={word} />
    </span>
  )
}

const requestMarks: Readonly<Record<LedgerRequest['status'], readonly [Mark, string]>> = {
  held: ['held', 'Held'],
  succeeded: ['charged', 'Succeeded'],
  failed: ['failed', 'Failed'],
  cancelled: ['cancelled', 'Cancelled'],
  refused: ['refused', 'Refused'],
}

/** The state of a component of the service, on every page that shows one. */
export const standings = {
  working: ['settled', 'Working'],
  failing: ['failed', 'Failing'],
  last_failed: ['held', 'Last answer failed'],
  unused: ['cancelled', 'Not used yet'],
  off: ['cancelled', 'Off'],
  unknown: ['cancelled', 'Unknown'],
} as const satisfies Readonly<Record<string, readonly [Mark, string]>>
