import { fileURLToPath } from 'node:url'
import type { Config } from '../config.ts'
import { type Database, openDatabase } from '../db/database.ts'
import { locateEmbeddedPostgres, startEmbeddedPostgres } from '../db/embedded-postgres.ts'
import { migrate } from '../db/migrate.ts'

export const migrationsFolder = fileURLToPath(new URL('../../migrations/', import.meta.url))

/**
 * The service's database for one command: an outside one, the embedded one of a running service, or, when no service
 * runs, the embedded one started for as long as the command takes.
 */
export async function withDatabase<Result>(
  config: Config,
  work: (database: Database) => Promise<Result>,
  { migrates = true }: { readonly migrates?: boolean } = {},
): Promise<Result> {
  const url = config.databaseUrl ?? (await locateEmbeddedPostgres(config.dataDir))
  if (url !== undefined) return withOpened(url, work, migrates)
  const postgres = await startEmbeddedPostgres({ dataDir: config.dataDir })
  try {
    return await withOpened(postgres.url, work, migrates)
  } finally {
    await postgres.stop()
  }
}

async function withOpened<Result>(
  url: string,
  work: (database: Database) => Promise<Result>,
  migrates: boolean,
): Promise<Result> {
  const database = openDatabase({ url, poolMax: 2, applicationName: 'penny command' })
  try {
    if (migrates) await migrate(database, migrationsFolder)
    return await work(database)
  } finally {
    await database.close()
  }
}
