import type { Database } from '../db/database.ts'
import type { Session } from './sessions.ts'

/** Who may use the operator's pages. */
export type Operators = {
  readonly accountIds: readonly string[]
  /** Lower case. Compared with wallets that sign in, never with owner addresses: those are not proven. */
  readonly wallets: readonly string[]
}

/** Parses the setting: account ids and wallet addresses. */
export function readOperators(listed: readonly string[]): Operators {
  const lower = listed.map((item) => item.toLowerCase())
  return {
    accountIds: lower.filter((item) => !item.startsWith('0x')),
    wallets: lower.filter((item) => item.startsWith('0x')),
  }
}

/** True for owners of a listed account (not its other members) and for people with a listed wallet. */
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
