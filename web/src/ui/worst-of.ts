type Known = { readonly data: unknown; readonly error: Error | null }

/**
 * Of several reads that one page needs, the one that tells how they all are: failed before still going on, going on
 * before one that could not be renewed. A list that lacks a part must not look like the whole.
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
