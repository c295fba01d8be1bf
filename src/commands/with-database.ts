import { addAbortListener } from 'node:events'
import type { Config } from '../config/config.ts'
import { distributeLedger } from '../db/citus.ts'
import { refuseCopied } from '../db/copy-marker.ts'
import type { Database } from '../db/database.ts'
import { findOutsideDatabase } from '../db/database-file.ts'
import { findCluster } from '../db/embedded/cluster.ts'
import { locateEmbeddedPostgres, startEmbeddedPostgres } from '../db/embedded-postgres.ts'
import { migrate, migrationsFolder } from '../db/migrate.ts'
import { embeddedIn, type Origin, openUsable } from '../db/open-usable.ts'
import { stopSignals } from '../process/stop-signals.ts'
import { CommandError } from './command.ts'
import { interruptedCode } from './stop-signal.ts'

/**
 * The service's database for one command: an external one (configured, or stored in the data folder by the last start), the embedded one
 * of a running service, or the embedded one, started for this command. Never creates a database: in the wrong folder, an audit of an
 * empty database would report that all is well.
 */
export async function withDatabase<Result>(
  config: Config,
  work: (database: Database) => Promise<Result>,
  { migrates = true, poolMax = 2 }: { readonly migrates?: boolean; readonly poolMax?: number } = {},
): Promise<Result> {
  const { dataDir } = config
  const open = (url: string, origin: Origin) =>
    withOpened({ url, poolMax, origin, migrates, partitions: config.ledgerPartitions }, work)
  const outside = findOutsideDatabase(config)
  if (outside !== undefined) return open(outside.url, outside.origin)
  const served = await locateEmbeddedPostgres(dataDir)
  if (served !== undefined) return open(served, embeddedIn(dataDir))
  if ((await findCluster(dataDir)) === undefined)
    throw new CommandError(
      `There is no database in ${dataDir}. Set DATA_DIR to the service’s data folder, or DATABASE_URL. penny start creates a new database.`,
    )
  return withEmbeddedPostgres(dataDir, (url) => open(url, embeddedIn(dataDir)))
}

/** Starts the embedded PostgreSQL for as long as the work takes. Refused while a service runs on the folder. */
export async function withEmbeddedPostgres<Result>(
  dataDir: string,
  work: (url: string) => Promise<Result>,
): Promise<Result> {
  // Ctrl-C must not leave the server running that is started for this command.
  const interrupted = new AbortController()
  const interrupt = () => interrupted.abort()
  for (const signal of stopSignals) process.on(signal, interrupt)
  try {
    const postgres = await startEmbeddedPostgres({ dataDir, signal: interrupted.signal })
    addAbortListener(interrupted.signal, () => void postgres.stop().finally(() => process.exit(interruptedCode)))
    try {
      return await work(postgres.url)
    } finally {
      await postgres.stop()
    }
  } catch (error) {
    if (interrupted.signal.aborted) process.exit(interruptedCode)
    throw error
  } finally {
    for (const signal of stopSignals) process.off(signal, interrupt)
  }
}

type Opening = {
  readonly url: string
  readonly poolMax: number
  readonly origin: Origin
  readonly migrates: boolean
  readonly partitions: number
}

async function withOpened<Result>(
  { url, poolMax, origin, migrates, partitions }: Opening,
  work: (database: Database) => Promise<Result>,
): Promise<Result> {
  const options = { url, poolMax, applicationName: 'penny command' }
  const database = await openUsable(options, origin, async (opened) => {
    await refuseCopied(opened)
    if (!migrates) return
    await migrate(opened, migrationsFolder)
    await distributeLedger(opened, partitions)
  })
  try {
    return await work(database)
  } finally {
    await database.close()
  }
}
