import { useState } from 'react'
import type { RequestFilter } from '../../api/queries.ts'
import type { LedgerRequest } from '../../api/shapes.ts'
import { useLiveEvents } from '../../shell/live.tsx'
import { matches } from './filters.ts'
import { hear, showWaiting, type Tail, tailOf } from './tail.ts'

export type LiveTail = {
  /** Newest first, on top of what was read. */
  readonly fresh: readonly LedgerRequest[]
  /** How many wait because the reader is looking at a row. */
  readonly waiting: number
  readonly show: () => void
}

/**
 * New requests that match the filter, held back while the reader looks at a row. The first row of an empty list is always shown:
 * it moves no other row.
 */
export function useLiveTail(filter: RequestFilter, live: boolean, paused: boolean, isFirst: boolean): LiveTail {
  const asked = JSON.stringify(filter)
  const [kept, setKept] = useState<Tail>()
  const { fresh, waiting } = tailOf(kept, asked)
  useLiveEvents((event) => {
    if (event.type !== 'request') return
    const isAwaited = isFirst && fresh.length + waiting.length === 0
    const isTaken = (live || isAwaited) && matches(event.request, filter)
    const into = !isTaken ? undefined : paused && !isAwaited ? 'waiting' : 'fresh'
    setKept((tail) => hear(tailOf(tail, asked), event.request, into))
  })
  const show = () => setKept((tail) => showWaiting(tailOf(tail, asked)))
  return { fresh, waiting: waiting.length, show }
}
