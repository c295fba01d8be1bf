type Known = { readonly data: unknown; readonly error: Error | null }

/**
 * The query to show for several queries of a page: failed before loading, loading before stale. A list that lacks a part must
 * not look complete.
 */
export function worstOf<Query extends Known>(first: Query, ...others: readonly Query[]): Query {
  const queries = [first, ...others]
  return (
    queries.find(({ data, error }) => data === undefined && error !== null) ??
    queries.find(({ data }) => data === undefined) ??
    queries.find(({ error }) => error !== null) ??
    first
  )
}
