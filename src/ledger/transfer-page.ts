/** The cursor of a page of transfers: rows before this instant (milliseconds), or at it with a lower id. */
export type TransferCursor = { readonly at: Date; readonly id: string }

export type TransferPage = { readonly below?: TransferCursor | undefined; readonly limit: number }

/**
 * The end of a statement that reads a page of an account's rows, newest first. The rows have `created_at` and a uuid as `id`; $1
 * and $2 identify the account, the rest are `pageValues`.
 */
export const pageOfAccount = `
  where partition = $1 and account_id = $2 and ($3::timestamptz is null or (date_trunc('milliseconds', created_at), id) < ($3, $4::uuid))
  order by date_trunc('milliseconds', created_at) desc, id desc limit $5`

export function pageValues({ below, limit }: TransferPage): readonly [Date | null, string | null, number] {
  return [below?.at ?? null, below?.id ?? null, limit]
}
