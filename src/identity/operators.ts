import type { Database } from '../db/database.ts'
import type { Session } from './sessions.ts'

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

/** Owners of a listed account, and whoever signs in with a listed wallet: other members of that account are not meant. */
export async function isOperator(
  database: Database,
  { accountIds, wallets }: Operators,
  { accountId, personId, role }: Session,
): Promise<boolean> {
  if (role === 'owner' && accountIds.includes(accountId)) return true
  if (wallets.length === 0) return false
  const [row] = await database.query<{ found: boolean }>(
    `select exists (select from wallets where person_id = $1 and address = any ($2)) as found`,
    [personId, wallets],
  )
  return row!.found
}
