import pg from 'pg'
import { OperatorError, reasonOf, UnusableSettingError } from '../errors.ts'
import { type Database, type DatabaseOptions, openDatabase } from './database.ts'

/** Names a database in error messages, with the remedy when it cannot be used. */
export type Origin = { readonly name: string; readonly remedy: string }

export const outside: Origin = {
  name: 'DATABASE_URL',
  remedy: 'Check host, port, name, user, password and network access.',
}

export function embeddedIn(dataDir: string): Origin {
  return { name: `The embedded PostgreSQL in ${dataDir}`, remedy: 'See postgres.log there.' }
}

/**
 * Opens a database and runs `work` on it. Errors of the server or the network become a one-line message for the operator; other errors
 * pass unchanged.
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
    throw error instanceof pg.DatabaseError
      ? new UnusableSettingError(origin.name, reasonOf(error), origin.remedy, error)
      : error
  }
}

/** Runs the first connection to a server. Any error there points to the setting. */
export async function refuseUnusable<Result>(origin: Origin, connect: () => Promise<Result>): Promise<Result> {
  try {
    return await connect()
  } catch (error) {
    // Already has a message for the operator.
    if (error instanceof OperatorError) throw error
    throw new UnusableSettingError(origin.name, reasonOf(error), origin.remedy, error)
  }
}
