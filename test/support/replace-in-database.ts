import type { Database } from '../../src/db/database.ts'

/** The database with some of its methods replaced by the test's own. */
export function replaceIn(database: Database, replaced: Partial<Database>): Database {
  return {
    query: (...call) => database.query(...call),
    queryPrepared: (...call) => database.queryPrepared(...call),
    execute: (script) => database.execute(script),
    transaction: (...call) => database.transaction(...call),
    close: () => database.close(),
    ...replaced,
  }
}
