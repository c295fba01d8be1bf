import type { Connection } from './database.ts'

/**
 * The database's clock, for statements that write a time. They take it as a parameter: Citus refuses clock_timestamp() in an
 * update.
 */
export async function readClock(connection: Connection): Promise<Date> {
  const [row] = await connection.query<{ now: Date }>('select clock_timestamp() as now')
  return row!.now
}
