/** Which account something is about, or belongs to: where it has an id of its own. */
export type AccountRef = { readonly partition: number; readonly accountId: string }

/** Exactly that, and no more of what is given. */
export function accountRef({ partition, accountId }: AccountRef): AccountRef {
  return { partition, accountId }
}
