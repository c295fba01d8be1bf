import type { Config } from '../config/config.ts'
import { findWorkersWithJit } from '../db/citus.ts'
import { type Database, openDatabase } from '../db/database.ts'
import { findOutsideDatabase } from '../db/database-file.ts'
import { locateEmbeddedPostgres } from '../db/embedded-postgres.ts'
import { embeddedIn } from '../db/open-usable.ts'
import { reasonOf } from '../errors.ts'
import { ledgerChecks } from '../http/health.ts'
import { tryHold } from '../ledger/try-hold.ts'
import { countUnansweredWithdrawals } from '../ledger/withdrawals.ts'
import { otherConnectionsMax, processConnectionsMax } from '../run/databases.ts'
import { type Finding, failed, ok, skipped, warning } from './finding.ts'

const versionMin = 150_000
const versionMax = 190_000
const skewSecondsMax = 5
const unansweredSecondsMax = 600

/** All checks of the database, as far as it can be reached. Changes nothing. */
export async function checkDatabase(config: Config, migrationsFolder: string): Promise<readonly Finding[]> {
  const outside = findOutsideDatabase(config)
  const url = outside?.url ?? (await locateEmbeddedPostgres(config.dataDir).catch(() => undefined))
  if (url === undefined)
    return [skipped('database', 'The embedded PostgreSQL is not running. It starts with the service.')]
  const origin = outside?.origin ?? embeddedIn(config.dataDir)
  const database = openDatabase({ url, poolMax: 1, applicationName: 'penny doctor', connectMaxMs: 3_000 })
  try {
    const findings = [await checkServer(database)]
    if (findings[0]!.state === 'failed') return findings
    findings.push(await checkConnections(database, config), await checkJit(database), await checkClock(database))
    const ledger = await checkLedger(database, migrationsFolder)
    findings.push(...ledger)
    if (ledger.length > 1) findings.push(await checkHolds(database, config.ledgerPartitions))
    return findings
  } catch (error) {
    return [failed('database', `${origin.name} cannot be used: ${reasonOf(error)}.`, origin.remedy)]
  } finally {
    await database.close()
  }
}

async function checkServer(database: Database): Promise<Finding> {
  const [row] = await database.query<{ number: number; version: string }>(
    `select current_setting('server_version_num')::int as number, current_setting('server_version') as version`,
  )
  const { number, version } = row!
  if (number >= versionMin && number < versionMax) return ok('database', `PostgreSQL ${version} responds.`)
  return failed('database', `PostgreSQL ${version} is not supported.`, 'Use PostgreSQL 15 to 18.')
}

/** Pools open connections as they need them: without room, requests are refused only under load. */
async function checkConnections(database: Database, { webProcesses }: Config): Promise<Finding> {
  const [row] = await database.query<{ max: number }>(`select current_setting('max_connections')::int as max`)
  const { max } = row!
  const needed = webProcesses * processConnectionsMax + otherConnectionsMax
  if (max >= needed)
    return ok('connections', `PostgreSQL accepts ${max} connections; this machine opens up to ${needed}.`)
  return warning(
    'connections',
    `PostgreSQL accepts ${max} connections; this machine opens up to ${needed} (WEB_PROCESSES is ${webProcesses}).`,
    'Raise max_connections to the sum of all machines, or lower WEB_PROCESSES. See docs/guides/scaling-out.md.',
  )
}

/** Our connections turn it off themselves; a pooler in between may undo that. */
async function checkJit(database: Database): Promise<Finding> {
  const [row] = await database.query<{ jit: string }>(`select current_setting('jit', true) as jit`)
  if (row!.jit !== 'on') return checkJitOfWorkers(database)
  return warning(
    'jit',
    'JIT compilation is on, which makes the ledger up to 12 times slower, and this connection could not turn it off.',
    'Run alter role <role> set jit = off as the database administrator, then restart penny.',
  )
}

/** On Citus each worker has its own setting. */
async function checkJitOfWorkers(database: Database): Promise<Finding> {
  const workers = await findWorkersWithJit(database)
  if (workers.length === 0) return ok('jit', 'JIT compilation is off.')
  return warning(
    'jit',
    `JIT compilation is on at ${workers.join(', ')}, which makes the ledger several times slower.`,
    'Run alter database <name> set jit = off on these workers as the database administrator, then restart penny.',
  )
}

/** The ledger uses the database's clock; people and certificates use this machine's. */
async function checkClock(database: Database): Promise<Finding> {
  const before = Date.now()
  const [row] = await database.query<{ at: Date }>('select clock_timestamp() as at')
  const skew = Math.abs(row!.at.getTime() - (before + Date.now()) / 2) / 1000
  if (skew <= skewSecondsMax) return ok('clock', 'The clocks of this machine and the database agree.')
  return warning(
    'clock',
    `The clocks of this machine and the database differ by ${Math.round(skew)} seconds.`,
    'Run NTP on both.',
  )
}

async function checkLedger(database: Database, migrationsFolder: string): Promise<readonly Finding[]> {
  const findings: Finding[] = []
  for (const { name, passed, find } of ledgerChecks) {
    const problem = await find(database, migrationsFolder)
    findings.push(problem === undefined ? ok(name, passed) : failed(name, problem.detail, problem.remedy))
    if (name === 'migrations' && problem !== undefined) return findings
  }
  return [...findings, await checkWithdrawals(database)]
}

/** Checks every partition: on a cluster, partitions are on different servers. */
async function checkHolds(database: Database, partitions: number): Promise<Finding> {
  const problems: string[] = []
  for (let partition = 0; partition < partitions; partition += 1) {
    await tryHold(database, partition).catch((error: unknown) =>
      problems.push(`partition ${partition}: ${reasonOf(error)}`),
    )
  }
  if (problems.length === 0) return ok('holds', 'A key can be looked up and a hold placed.')
  const count = partitions === 1 ? 'Holds fail' : `Holds fail in ${problems.length} of ${partitions} partitions`
  return failed(
    'holds',
    `${count}. ${problems[0]}.`,
    'Run penny migrate. On Citus, see docs/scaling.md, A dead worker.',
  )
}

/** Withdrawals and payouts that may have been submitted and were never acknowledged: the only money whose place is unknown. */
async function checkWithdrawals(database: Database): Promise<Finding> {
  const count = await countUnansweredWithdrawals(database, unansweredSecondsMax)
  if (count === 0) return ok('withdrawals', 'The gateway has answered all withdrawals and payouts.')
  return failed(
    'withdrawals',
    `The gateway has not confirmed ${count} withdrawals or payouts.`,
    'See docs/runbooks/settlement-stuck.md, A withdrawal without an answer.',
  )
}
