import { type Database, isTransient } from '../db/database.ts'
import { DatabaseNewerError, pendingMigrations } from '../db/migrate.ts'
import { OperatorError } from '../errors.ts'
import { findFreeze } from '../ledger/freeze.ts'
import { tryHold } from '../ledger/try-hold.ts'
import type { Problems } from './readiness.ts'

/** What the database says against serving: its schema is not ours, the ledger is frozen, or holds fail. */
export async function findProblems(database: Database, migrationsFolder: string): Promise<Problems> {
  const migrations = await findMigrationProblem(database, migrationsFolder)
  if (migrations !== undefined) return { migrations }
  const freeze = await findFreeze(database)
  if (freeze !== undefined) return { ledger: `frozen: ${freeze}` }
  return (await holdsFail(database)) ? { ledger: 'holds fail: see penny doctor' } : {}
}

/**
 * Whether a hold is refused by a fault that waiting does not mend. One worker of a cluster that is down is no such fault: the accounts
 * on the others are served.
 */
async function holdsFail(database: Database): Promise<boolean> {
  try {
    await tryHold(database, 0)
    return false
  } catch (error) {
    return !isTransient(error)
  }
}

async function findMigrationProblem(database: Database, migrationsFolder: string): Promise<string | undefined> {
  try {
    const pending = await pendingMigrations(database, migrationsFolder)
    return pending.length === 0 ? undefined : `not applied: ${pending.join(', ')}`
  } catch (error) {
    // A newer node has come, and this one is about to be replaced: until then it serves, or an upgrade would stop them all at once.
    if (error instanceof DatabaseNewerError) return undefined
    // The database has answered: these words are our own.
    if (error instanceof OperatorError) return error.message
    throw error
  }
}
