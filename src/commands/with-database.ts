import { fileURLToPath } from 'node:url'
import type { Config } from '../config.ts'
import type { Database } from '../db/database.ts'
import { findOutsideDatabase } from '../db/database-file.ts'
import { findCluster } from '../db/embedded/cluster.ts'
import { locateEmbeddedPostgres, startEmbeddedPostgres } from '../db/embedded-postgres.ts'
import { migrate } from '../db/migrate.ts'
import { embeddedIn, type Origin, openUsable } from '../db/open-usable.ts'
import { CommandError } from './command.ts'

export const migrationsFolder = fileURLToPath(new URL('../../migrations/', import.meta.url))

/**
 * The service's database for one command: an outside one, configured or left in the data folder by the last start, the embedded
 * one of a running service, or, when no service runs, the embedded one started for as long as the command takes. Only a start
 * makes a new one: in the wrong folder an audit of it would say that all is well.
 */
export async function withDatabase<Result>(
  config: Config,
  work: (database: Database) => Promise<Result>,
  { migrates = true }: { readonly migrates?: boolean } = {},
): Promise<Result> {
  const { dataDir } = config
  const outside = findOutsideDatabase(config)
  if (outside !== undefined) return withOpened(outside.url, outside.origin, work, migrates)
  const served = await locateEmbeddedPostgres(dataDir)
  if (served !== undefined) return withOpened(served, embeddedIn(dataDir), work, migrates)
  if ((await findCluster(dataDir)) === undefined)
    throw new CommandError(
      `There is no database in ${dataDir}. Set DATA_DIR to the service’s data folder, or DATABASE_URL; penny start makes a new one.`,
    )
  const postgres = await startEmbeddedPostgres({ dataDir })
  // A Ctrl-C must not leave the server running that was started for this command.
  const interrupt = () => void postgres.stop().finally(() => process.exit(130))
  for (const signal of stopSignals) process.on(signal, interrupt)
  try {
    return await withOpened(postgres.url, embeddedIn(dataDir), work, migrates)
  } finally {
    await postgres.stop()
    for (const signal of stopSignals) process.off(signal, interrupt)
  }
}

const stopSignals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

async function withOpened<Result>(
  url: string,
  origin: Origin,
  work: (database: Database) => Promise<Result>,
  migrates: boolean,
): Promise<Result> {
  const options = { url, poolMax: 2, applicationName: 'penny command' }
  const database = await openUsable(options, origin, async (opened) => {
    if (migrates) await migrate(opened, migrationsFolder)
  })
  try {
    return await work(database)
  } finally {
    await database.close()
  }
}
