import { evaluateAccounts } from '../alerts/alerts.ts'
import { Mailer, type MailerOptions } from '../alerts/mailer.ts'
import type { Database } from '../db/database.ts'
import { type Exclusive, tryExclusive } from '../db/exclusive.ts'
import { listPartitions } from '../ledger/accounts.ts'
import { openTransferStates } from '../ledger/states.ts'
import { every, type Job } from './every.ts'

export type WatchAlertsOptions = {
  readonly database: Database
  readonly databaseUrl: string
  /** Undefined: no mail is sent. */
  readonly mail: Pick<MailerOptions, 'smtpUrl' | 'from'> | undefined
  readonly onError: (error: unknown) => void
  readonly onMailError: (error: unknown) => void
  readonly everyMs?: number
}

/** Queued mail is sent sooner: it wakes the mailer. */
const watchMs = 15_000
const accountsPerBatch = 200
/** Idle accounts with an open alert that are evaluated per pass; they take turns. */
const openPerPassMax = 1_000

/**
 * Evaluates the alert rules of accounts in use, and sends mail, from one process at a time over all nodes. Mail has a loop of its own:
 * a mail server that does not answer delays no alert.
 */
export function watchAlerts(options: WatchAlertsOptions): Job {
  const { database, databaseUrl, mail, onError, onMailError, everyMs = watchMs } = options
  let alone: Exclusive | undefined
  const watch = new AlertWatch(database)
  const mailer = mail && new Mailer({ database, ...mail, onError: onMailError })
  const job = every(
    everyMs,
    async () => {
      if (alone === undefined) {
        const lock = await tryExclusive(databaseUrl, 'alerts', { onWoken: () => mails.wake() })
        if (lock === undefined) return
        alone = lock
        void lock.lost.then(() => {
          if (alone === lock) alone = undefined
        })
      }
      await watch.evaluateDue()
    },
    onError,
  )
  const mails = every(everyMs, async () => (alone === undefined ? undefined : mailer?.send()), onMailError)
  return {
    async now() {
      await job.now()
      await mails.now()
    },
    wake: () => mails.wake(),
    async stop() {
      await job.stop()
      await mails.stop()
      mailer?.close()
      await alone?.release()
    },
  }
}

/** Selects the accounts to evaluate. Remembers per partition how far the round over accounts with open alerts has come. */
export class AlertWatch {
  readonly #database: Database
  readonly #cursors = new Map<number, string>()

  constructor(database: Database) {
    this.#database = database
  }

  async evaluateDue(): Promise<void> {
    for (const partition of await listPartitions(this.#database)) {
      const ids = [...new Set([...(await this.#inUse(partition)), ...(await this.#withOpenAlerts(partition))])]
      for (let from = 0; from < ids.length; from += accountsPerBatch)
        await evaluateAccounts(this.#database, partition, ids.slice(from, from + accountsPerBatch))
    }
  }

  /** Accounts with recent activity that a rule may look at. */
  async #inUse(partition: number): Promise<readonly string[]> {
    const rows = await this.#database.query<{ account_id: string }>(inUse, [partition])
    return rows.map(({ account_id }) => account_id)
  }

  /** An alert can be resolved without activity of its account: because an hour has ended, or a key was removed. */
  async #withOpenAlerts(partition: number): Promise<readonly string[]> {
    const rows = await this.#database.query<{ account_id: string }>(
      `select distinct account_id from alerts where partition = $1 and resolved_at is null and account_id > $2
        order by account_id limit ${openPerPassMax}`,
      [partition, this.#cursors.get(partition) ?? '00000000-0000-0000-0000-000000000000'],
    )
    if (rows.length < openPerPassMax) this.#cursors.delete(partition)
    else this.#cursors.set(partition, rows.at(-1)!.account_id)
    return rows.map(({ account_id }) => account_id)
  }
}

const inUse = `
  select account_id from usage_hours where partition = $1 and hour >= date_trunc('hour', now(), 'UTC') - interval '1 hour'
  union select account_id from transfers where partition = $1 and account_id is not null and state in ${openTransferStates}
  union select account_id from payments where partition = $1 and state = any ('{submitted,received,batched,unknown}')
  union select account_id from alert_rules where partition = $1 and changed_at > now() - interval '10 minutes'
  union select account_id from webhook_endpoints where partition = $1 and disabled_at > now() - interval '10 minutes'`
