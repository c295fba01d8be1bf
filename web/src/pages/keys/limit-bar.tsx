import type { Key } from '../../api/shapes.ts'
import { atomic, formatAmount } from '../../money/format.ts'
import { windowWords } from './key-terms.ts'

/** Spent against limit, as a bar and in words. Held money counts: it may still be spent. */
export function LimitBar({ apiKey }: { apiKey: Key }) {
  const used = atomic(apiKey.spent_atomic)
  const held = atomic(apiKey.held_atomic)
  if (apiKey.limit_atomic === null) {
    return <span className="text-muted">{formatAmount(used)} spent, no limit</span>
  }
  const limit = atomic(apiKey.limit_atomic)
  const share = (part: bigint) => (limit === 0n ? 100 : Math.min(100, Number((part * 1000n) / limit) / 10))
  return (
    <div className="flex min-w-40 flex-col gap-1">
      <span className="whitespace-nowrap">
        <span className="num">{formatAmount(used)}</span> of <span className="num">{formatAmount(limit)}</span>{' '}
        <span className="text-muted">{windowWords[apiKey.limit_window][1]}</span>
      </span>
      <span className="flex h-1 overflow-hidden rounded-sm bg-rule" aria-hidden="true">
        <span className="bg-ink" style={{ width: `${share(used)}%` }} />
        <span className="bg-held" style={{ width: `${share(held)}%` }} />
      </span>
    </div>
  )
}
