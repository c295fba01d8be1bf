import type { Connection } from './database.ts'

/**
 * The database's clock, for statements that write a time. They take it as a parameter: Citus refuses clock_timestamp() in an
 * update.
 */
export async function readClock(connection: Connection): Promise<Date> {
  const [row] = await connection.query<{ now: Date }>('select clock_timestamp() as now')
  return row!.now
}

/**
 * SQL: whether a row was last checked longer than `pause` ago. A time in the future counts too: the database's clock was ahead and was
 * set back, and the row must not wait until the clock gets there.
 */
export function isLongerAgo(time: string, pause: string): string {
  return `(${time} <= clock_timestamp() - ${pause} or ${time} > clock_timestamp())`
}
