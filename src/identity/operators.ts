import type { AccountRef } from '../db/account-ref.ts'
import type { Database } from '../db/database.ts'

/** Who may see the operator's pages. */
export type Operators = {
  readonly accountIds: readonly string[]
  /** Lower case. A wallet counts only where it signs in: an owner address can be anybody's, for nobody has to prove it. */
  readonly wallets: readonly string[]
}

/** Account ids and wallet addresses, as the setting lists them. */
export function readOperators(listed: readonly string[]): Operators {
  const lower = listed.map((item) => item.toLowerCase())
  return {
    accountIds: lower.filter((item) => !item.startsWith('0x')),
    wallets: lower.filter((item) => item.startsWith('0x')),
  }
}

export async function isOperator(
  database: Database,
  { accountIds, wallets }: Operators,
  { partition, accountId }: AccountRef,
): Promise<boolean> {
  if (accountIds.includes(accountId)) return true
  if (wallets.length === 0) return false
  const [row] = await database.query<{ found: boolean }>(
    `select exists (select from wallets where partition = $1 and account_id = $2 and address = any ($3)) as found`,
    [partition, accountId, wallets],
  )
  return row!.found
}
