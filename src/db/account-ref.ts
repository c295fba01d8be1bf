/** Identifies an account. */
export type AccountRef = { readonly partition: number; readonly accountId: string }

/** Copies only these two members. */
export function accountRef({ partition, accountId }: AccountRef): AccountRef {
  return { partition, accountId }
}
