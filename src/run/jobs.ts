import { setTimeout as sleep } from 'node:timers/promises'
import { allowsLoopbackWebhooks } from '../config/config.ts'
import type { Database } from '../db/database.ts'
import { Auditor, type AuditScope } from '../jobs/audit-ledger.ts'
import { cleanUp } from '../jobs/clean-up.ts'
import { deliverWebhooks } from '../jobs/deliver-webhooks.ts'
import { every, type Job } from '../jobs/every.ts'
import { watchAlerts } from '../jobs/watch-alerts.ts'
import type { Violation } from '../ledger/audit.ts'
import { deleteExcessEvents } from '../ledger/events.ts'
import { writeGauge } from '../ledger/ledger-numbers.ts'
import { endStaleWatches } from '../ledger/watched-accounts.ts'
import type { ServiceMetrics } from '../observe/service-metrics.ts'
import { packageVersion } from '../process/package-version.ts'
import { openSafePost } from '../tools/web-tools.ts'
import type { Databases } from './databases.ts'
import type { StartContext } from './start-context.ts'

const cleanUpMs = 10 * 60_000
const stopMsMax = 3_000
const deleteExcessEventsMs = 60_000
/** Not an hour after the start, or a service that is often restarted would never audit all accounts. */
const firstFullAuditMs = 5 * 60_000

/**
 * Audits the accounts in use continuously. Audits all accounts periodically, and only on the machine that settles: one full audit
 * is enough for all nodes, and its snapshot holds back vacuum.
 */
export function startAudit({ config, log, stack }: StartContext, database: Database, metrics: ServiceMetrics): void {
  const onError = (error: unknown) => log.error({ err: error }, 'the ledger could not be audited')
  const auditor = new Auditor({
    database,
    recentSeconds: Math.ceil((5 * config.auditMs) / 1000),
    onViolations: (violations: readonly Violation[]) =>
      log.error({ violations }, 'an invariant failed: the ledger is frozen'),
    onAudited: (scope: AuditScope, imbalance: bigint, violations: number) => {
      metrics.imbalance.set(Number(imbalance), scope)
      metrics.violations.set(violations, scope)
      metrics.auditedAt.set(Date.now() / 1000, scope)
      // The operator's page shows the latest audit of any node.
      writeGauge(database, `audit_${scope}_violations`, violations).catch(onError)
    },
  })
  const recent = every(config.auditMs, () => auditor.audit('recent'), onError)
  stopWith(stack, recent)
  if (config.settles) {
    const all = every(config.fullAuditMs, () => auditor.audit('all'), onError, firstFullAuditMs)
    stopWith(stack, all)
  }
  // Do not wait a minute for the first audit.
  void recent.now()
}

/** Sends webhooks, on machines with the role `jobs`; only one of them is active at a time. */
export function startWebhooks(
  { config, log, stack }: StartContext,
  databases: Databases,
  publicUrl: string,
  metrics: ServiceMetrics,
): void {
  if (!config.settles) return
  const job = deliverWebhooks({
    database: databases.jobs,
    databaseUrl: databases.url,
    post: openSafePost({ publicUrl, version: packageVersion, allowsLoopback: allowsLoopbackWebhooks(config) }),
    onDisabled: ({ id, accountId }, reason) =>
      log.warn({ webhook_id: id, account_id: accountId, reason }, 'a webhook endpoint was disabled'),
    onAttempt: (isDelivered) => metrics.webhookAttempts.add(1, isDelivered ? 'delivered' : 'failed'),
    onError: (error) => log.error({ err: error }, 'webhooks could not be sent'),
  })
  stopWith(stack, job)
}

/** Evaluates alert rules and sends mail, on machines with the role `jobs`: one of them at a time. */
export function startAlerts({ config, log, stack }: StartContext, databases: Databases, publicUrl: string): void {
  if (!config.settles) return
  const { mail } = config
  const job = watchAlerts({
    database: databases.jobs,
    databaseUrl: databases.url,
    mail: mail && { smtpUrl: mail.smtpUrl, from: mail.from ?? `Penny <alerts@${new URL(publicUrl).hostname}>` },
    onError: (error) => log.error({ err: error }, 'alerts could not be evaluated'),
    onMailError: (error) => log.warn({ err: error }, 'mail could not be sent'),
  })
  stopWith(stack, job)
}

/** Deletes old rows: kept answers, sign-ins, refusals, events and others. Creates the partitions of the next months. */
export function startCleanUp({ config, log, stack }: StartContext, database: Database): void {
  const onError = (error: unknown) => log.error({ err: error }, 'cleanup failed')
  const job = every(cleanUpMs, () => cleanUp(database, config, onError), onError)
  stopWith(stack, job)
  if (!config.settles) return
  const deleteExcess = every(
    deleteExcessEventsMs,
    async () => {
      await endStaleWatches(database)
      await deleteExcessEvents(database)
    },
    onError,
  )
  stopWith(stack, deleteExcess)
}

/** A stop does not wait for a statement of minutes: closing the database ends it. */
function stopWith(stack: StartContext['stack'], job: Pick<Job, 'stop'>): void {
  stack.defer(() => Promise.race([job.stop(), sleep(stopMsMax, undefined, { ref: false })]))
}
