/** Runs `work` for every item, at most `concurrencyMax` at a time. Rejects with the first failure. */
export async function eachOf<Item>(
  items: readonly Item[],
  concurrencyMax: number,
  work: (item: Item, index: number) => Promise<void>,
): Promise<void> {
  const entries = items.entries()
  await Promise.all(
    Array.from({ length: Math.min(concurrencyMax, items.length) }, async () => {
      for (const [index, item] of entries) await work(item, index)
    }),
  )
}
