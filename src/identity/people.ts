import { randomUUID } from 'node:crypto'
import type { Connection } from '../db/database.ts'

/** Creates a person without credentials and without accounts. Returns the id. */
export async function createPerson(connection: Connection, name: string): Promise<string> {
  const id = randomUUID()
  await connection.query('insert into people (id, name) values ($1, $2)', [id, name])
  return id
}

/**
 * Locks a person until the end of the transaction: changes of credentials and memberships are serialized. A transaction that also locks
 * the account locks the account first. False when the person was deleted.
 */
export async function lockPerson(connection: Connection, personId: string): Promise<boolean> {
  const rows = await connection.query('select id from people where id = $1 for update', [personId])
  return rows.length > 0
}

export async function renamePerson(connection: Connection, personId: string, name: string): Promise<void> {
  await connection.query('update people set name = $2 where id = $1', [personId, name])
}

/** How many wallets and passkeys a person has. */
export async function countCredentials(connection: Connection, personId: string): Promise<number> {
  const [row] = await connection.query<{ count: number }>(
    `select ((select count(*) from wallets where person_id = $1) + (select count(*) from passkeys where person_id = $1))::int as count`,
    [personId],
  )
  return row!.count
}
