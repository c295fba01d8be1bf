import type { AccountRef } from '../db/account-ref.ts'
import type { Connection } from '../db/database.ts'

/** Moves the members of one account to another, with their roles, and ends their sessions. Only the sandbox needs it. */
export async function moveMembers(connection: Connection, from: AccountRef, to: AccountRef): Promise<void> {
  const moved = await connection.query<{ person_id: string; role: string; owner_since: Date | null; joined_at: Date }>(
    'delete from memberships where partition = $1 and account_id = $2 returning person_id, role, owner_since, joined_at',
    [from.partition, from.accountId],
  )
  for (const { person_id, role, owner_since, joined_at } of moved) {
    await connection.query(
      `insert into memberships (partition, account_id, person_id, role, owner_since, joined_at) values ($1, $2, $3, $4, $5, $6)`,
      [to.partition, to.accountId, person_id, role, owner_since, joined_at],
    )
  }
  for (const table of ['sessions', 'invitations', 'management_keys'])
    await connection.query(`delete from ${table} where account_id = $1`, [from.accountId])
}
