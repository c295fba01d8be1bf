/** The `limit` of a statement that `untilFewer` repeats. */
export const deletedAtOnce = 10_000

/** Repeats a delete while it finds a whole chunk: one long statement would keep its rows locked and block vacuum. */
export async function untilFewer(remove: () => Promise<readonly unknown[]>): Promise<void> {
  while ((await remove()).length === deletedAtOnce);
}
