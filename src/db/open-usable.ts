import pg from 'pg'
import { OperatorError, reasonOf, UnusableSettingError } from '../errors.ts'
import { type Database, type DatabaseOptions, openDatabase } from './database.ts'

/** Whose fault it is that a database does not serve, in the operator's words, and what to do about it. */
export type Origin = { readonly name: string; readonly remedy: string }

export const outside: Origin = {
  name: 'DATABASE_URL',
  remedy: 'Check host, port, name, user, password and network access.',
}

export function embeddedIn(dataDir: string): Origin {
  return { name: `The embedded PostgreSQL in ${dataDir}`, remedy: 'See postgres.log there.' }
}

/**
 * Opens a database and does the first work on it. What the server, or the way to it, has against that is one line for the
 * operator; what else goes wrong stays what it is.
 */
export async function openUsable(
  options: DatabaseOptions,
  origin: Origin,
  prepare: (database: Database) => Promise<unknown>,
): Promise<Database> {
  const database = openDatabase(options)
  try {
    await refuseUnusable(origin, () => database.query('select 1'))
    await prepare(database)
    return database
  } catch (error) {
    await database.close()
    throw error instanceof pg.DatabaseError ? new UnusableDatabaseError(origin, error) : error
  }
}

/** The first word with a server: whatever goes wrong there, the setting is to be looked at. */
export async function refuseUnusable<Result>(origin: Origin, connect: () => Promise<Result>): Promise<Result> {
  try {
    return await connect()
  } catch (error) {
    // One that already says what to do.
    if (error instanceof OperatorError) throw error
    throw new UnusableDatabaseError(origin, error)
  }
}

class UnusableDatabaseError extends UnusableSettingError {
  constructor({ name, remedy }: Origin, cause: unknown) {
    super(name, reasonOf(cause), remedy, cause)
  }
}
