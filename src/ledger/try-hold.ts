import type { Database } from '../db/database.ts'

const unusedId = '00000000-0000-0000-0000-000000000000'

/**
 * Runs the statements of a request without changing anything: looks up an API key that does not exist, and places a hold of
 * nothing in the partition.
 *
 * @throws the database's error
 */
export async function tryHold(database: Database, partition: number): Promise<void> {
  await database.query('select partition, account_id, key_id from api_key_hashes where hash = $1', [Buffer.alloc(32)])
  await database.query('select decision from quote_hold($1, $2, $2, 1, 1)', [partition, unusedId])
  await database.query(`select place, decision from place_holds($1, $2, 'infinity', 'none', 1, '{}', '{}', '{}')`, [
    partition,
    unusedId,
  ])
}
