import { useState } from 'react'
import type { RequestFilter } from '../../api/queries.ts'
import type { LedgerRequest } from '../../api/shapes.ts'
import { useLiveEvents } from '../../shell/live.tsx'
import { matches } from './filters.ts'

const freshMax = 500

export type LiveTail = {
  /** Newest first, on top of what was read. */
  readonly fresh: readonly LedgerRequest[]
  /** How many wait because the reader is looking at a row. */
  readonly waiting: number
  readonly show: () => void
}

/** New requests that match the filter, held back while the reader must not lose the line. */
export function useLiveTail(filter: RequestFilter, live: boolean, paused: boolean): LiveTail {
  const [fresh, setFresh] = useState<readonly LedgerRequest[]>([])
  const [waiting, setWaiting] = useState<readonly LedgerRequest[]>([])
  useLiveEvents((event) => {
    if (event.type !== 'request') return
    const { request } = event
    const replace = (list: readonly LedgerRequest[]) => list.map((row) => (row.id === request.id ? request : row))
    const known = [...fresh, ...waiting].some(({ id }) => id === request.id)
    if (known) {
      setFresh(replace)
      setWaiting(replace)
    } else if (live && matches(request, filter)) {
      const add = paused ? setWaiting : setFresh
      add((list) => [request, ...list].slice(0, freshMax))
    }
  })
  const show = () => {
    setFresh((list) => [...waiting, ...list].slice(0, freshMax))
    setWaiting([])
  }
  return { fresh, waiting: waiting.length, show }
}
