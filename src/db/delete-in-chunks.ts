/** The `limit` of a statement that `deleteInChunks` repeats. */
export const chunkRowsMax = 10_000

/**
 * Repeats a delete that is limited to `chunkRowsMax` rows until it finds fewer: one long statement would keep its rows locked and block
 * vacuum.
 */
export async function deleteInChunks(deleteChunk: () => Promise<readonly unknown[]>): Promise<void> {
  while ((await deleteChunk()).length === chunkRowsMax);
}
