import type { PriceList } from '../billing/price-list.ts'
import { distributeLedger } from '../db/citus.ts'
import { refuseOtherComposites } from '../db/composite.ts'
import { refuseCopied } from '../db/copy-marker.ts'
import { type Database, type DatabaseOptions, openDatabase } from '../db/database.ts'
import { startEmbeddedPostgres } from '../db/embedded-postgres.ts'
import { migrate, migrationsFolder } from '../db/migrate.ts'
import { embeddedIn, openUsable, outside, refuseUnusable } from '../db/open-usable.ts'
import { refuseTransactionPooler } from '../db/pooler.ts'
import { setUnsettledCap } from '../ledger/accounts.ts'
import { holdComposites } from '../ledger/hold-statements.ts'
import { recordPrices } from '../ledger/prices.ts'
import { createRequestMonths } from '../ledger/requests.ts'
import type { StartContext } from './start-context.ts'

/** Connection pools to one database. Each kind of work has its own pool, so that none can starve another. */
export type Databases = {
  readonly url: string
  /** For jobs, metrics and health. */
  readonly jobs: Database
  /** For holds and ends. */
  readonly ledger: Database
  /** For this node's lease alone: what waits for a worker that is down must not keep the lease from being renewed. */
  readonly lease: Database
  /** For lookups before the hold: the API key, earlier attempts. */
  readonly lookUps: Database
  /** For the dashboard and `/api`. */
  readonly api: Database
  /** For the operator's pages. Their queries span all accounts, so few run concurrently, with a short timeout. */
  readonly operator: Database
}

const jobs = { poolMax: 4, applicationName: 'penny' }
const ledger = { poolMax: 8, applicationName: 'penny ledger' }
const lease = { poolMax: 1, applicationName: 'penny lease' }
const lookUps = { poolMax: 4, applicationName: 'penny look-ups' }
const api = { poolMax: 4, applicationName: 'penny api' }
const operator = { poolMax: 2, statementMaxMs: 3_000, applicationName: 'penny operator' }

/** The most connections that one process that serves requests opens through its pools. */
export const processConnectionsMax = [jobs, ledger, lease, lookUps, api, operator].reduce(
  (sum, { poolMax }) => sum + poolMax,
  0,
)
/** What a machine opens besides: settlement, its locks, the gateway, commands. */
export const otherConnectionsMax = 20

/** Starts the embedded PostgreSQL if no database is configured, and migrates the schema. */
export async function openDatabases(
  context: StartContext,
  prices: PriceList,
  onLost: (error: Error) => void,
): Promise<Databases> {
  const { config, onProgress, signal } = context
  const url = config.databaseUrl ?? (await startPostgres(context, onLost))
  const origin = config.databaseUrl === undefined ? embeddedIn(config.dataDir) : outside
  if (config.databaseUrl !== undefined) await refuseUnusable(outside, () => refuseTransactionPooler(url))
  const usable = await openUsable({ url, ...jobs }, origin, async (opened) => {
    signal?.throwIfAborted()
    await refuseCopied(opened)
    await migrate(opened, migrationsFolder, onProgress)
    await refuseOtherComposites(opened, holdComposites)
    await distributeLedger(opened, config.ledgerPartitions)
    await recordPrices(opened, prices.version, [...prices.models.values()], prices.searchPerCall)
    await setUnsettledCap(opened, config.unsettledCap)
    await createRequestMonths(opened)
  })
  await usable.close()
  return openPools(context, url)
}

/** Opens the pools to a database that is ready for use. */
export function openPools({ stack }: StartContext, url: string): Databases {
  const open = (options: Omit<DatabaseOptions, 'url'>) => {
    const database = openDatabase({ url, ...options })
    stack.defer(() => database.close())
    return database
  }
  return {
    url,
    jobs: open(jobs),
    ledger: open(ledger),
    lease: open(lease),
    lookUps: open(lookUps),
    api: open(api),
    operator: open(operator),
  }
}

async function startPostgres(
  { config, stack, onProgress, signal }: StartContext,
  onLost: (error: Error) => void,
): Promise<string> {
  const postgres = await startEmbeddedPostgres({
    dataDir: config.dataDir,
    onProgress,
    signal,
    onLost: (error) => onLost(new Error(`PostgreSQL is lost: ${String(error)}`)),
  })
  stack.defer(() => postgres.stop())
  return postgres.url
}
