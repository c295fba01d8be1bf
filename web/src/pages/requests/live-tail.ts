import type { LedgerRequest } from '../../api/shapes.ts'

// Requests that arrived live, above a list that was fetched.

const freshMax = 500

export type Tail = {
  /** The filter that its rows matched, as text. */
  readonly asked: string
  /** Newest first, above the loaded rows. */
  readonly fresh: readonly LedgerRequest[]
  /** Held back while the reader looks at a row. */
  readonly waiting: readonly LedgerRequest[]
}

/** Reset when the filter changes: old rows may not match it. */
export function tailOf(tail: Tail | undefined, asked: string): Tail {
  return tail?.asked === asked ? tail : { asked, fresh: [], waiting: [] }
}

/** Replaces a known row in place, or adds a new row at the top of the list `into`. */
export function hear(tail: Tail, request: LedgerRequest, into: 'fresh' | 'waiting' | undefined): Tail {
  const known = [...tail.fresh, ...tail.waiting].some(({ id }) => id === request.id)
  if (known) {
    const replace = (list: readonly LedgerRequest[]) => list.map((row) => (row.id === request.id ? request : row))
    return { ...tail, fresh: replace(tail.fresh), waiting: replace(tail.waiting) }
  }
  return into === undefined ? tail : { ...tail, [into]: [request, ...tail[into]].slice(0, freshMax) }
}

export function showWaiting(tail: Tail): Tail {
  return { ...tail, fresh: [...tail.waiting, ...tail.fresh].slice(0, freshMax), waiting: [] }
}
