import { type Database, isTransient } from '../db/database.ts'
import { DatabaseNewerError, pendingMigrations } from '../db/migrate.ts'
import { OperatorError } from '../errors.ts'
import { findFreeze } from '../ledger/freeze.ts'
import { tryHold } from '../ledger/try-hold.ts'
import type { Problems } from './readiness.ts'

/** Database problems that prevent serving: another schema version, a frozen ledger, failing holds. */
export async function findProblems(database: Database, migrationsFolder: string): Promise<Problems> {
  const migrations = await findMigrationProblem(database, migrationsFolder)
  if (migrations !== undefined) return { migrations }
  const freeze = await findFreeze(database)
  if (freeze !== undefined) return { ledger: `frozen: ${freeze}` }
  return (await holdsFail(database)) ? { ledger: 'holds fail: see penny doctor' } : {}
}

/**
 * Whether holds fail with an error that is not transient. A Citus worker that is down does not count: accounts on the other workers are
 * still served.
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
    // A newer node has migrated the schema. This one serves until it is replaced: otherwise an upgrade would stop all nodes together.
    if (error instanceof DatabaseNewerError) return undefined
    // Our own message, which contains nothing of the server's.
    if (error instanceof OperatorError) return error.message
    throw error
  }
}
