import type { AccountRef } from '../db/account-ref.ts'
import { readClock } from '../db/clock.ts'
import type { Connection, Database } from '../db/database.ts'
import { lockAccount } from '../db/lock-account.ts'
import { rowOf, rowsOf } from '../db/rows.ts'
import { writeEvent } from '../db/write-event.ts'
import { listPartitions } from '../ledger/accounts.ts'
import { format, fromAtomic } from '../money/usdc.ts'
import { queueAlertMail } from './emails.ts'
import { type AlertKind, type AlertLevel, type AlertRule, alertKinds, decide } from './kinds.ts'
import { type Measure, measureAccounts } from './measure.ts'
import { readRulesOf } from './rules.ts'

/** An alert that fired. One that fires again takes the place of its last time. */
export type Alert = {
  readonly kind: AlertKind
  readonly subject: string
  readonly level: AlertLevel
  readonly message: string
  readonly firedAt: Date
  readonly resolvedAt: Date | undefined
}

const listedMax = 100
const resolvedDays = 30

/** Open alerts first, then the newest. `keysMadeBy` leaves out alerts about keys that other people created. */
export async function listAlerts(
  connection: Connection,
  { partition, accountId }: AccountRef,
  which: 'open' | 'all',
  keysMadeBy?: string | undefined,
): Promise<readonly Alert[]> {
  return rowsOf<Alert>(
    connection.query(
      `select ${alertColumns} from alerts where partition = $1 and account_id = $2 and ($3 or resolved_at is null)
        and ($4::uuid is null or kind <> 'key_limit' or subject in
              (select k.id::text from api_keys k where k.partition = $1 and k.account_id = $2 and k.made_by = $4))
      order by resolved_at is not null, fired_at desc, kind, subject limit ${listedMax}`,
      [partition, accountId, which === 'all', keysMadeBy ?? null],
    ),
  )
}

/**
 * Compares accounts with their rules. Writes alerts that fired or were resolved with their event and mail, in one transaction per
 * account. Skips a change that another process wrote first, so each alert fires once.
 */
export async function evaluateAccounts(
  database: Database,
  partition: number,
  accountIds: readonly string[],
): Promise<void> {
  if (accountIds.length === 0) return
  const now = await readClock(database)
  const [measures, ruleOf, open] = await Promise.all([
    measureAccounts(database, partition, accountIds, now),
    readRulesOf(database, partition, accountIds),
    rowsOf<Alert & { readonly accountId: string }>(
      database.query(
        `select account_id, ${alertColumns} from alerts where partition = $1 and account_id = any ($2::uuid[]) and resolved_at is null`,
        [partition, accountIds],
      ),
    ),
  ])
  for (const accountId of accountIds) {
    const changes = changesOf(
      measures.get(accountId) ?? [],
      (kind) => ruleOf(accountId, kind),
      open.filter((alert) => alert.accountId === accountId),
    )
    if (changes.length > 0) await writeChanges(database, { partition, accountId }, changes)
  }
}

type Change =
  | { readonly what: 'fire'; readonly measure: Measure; readonly rule: AlertRule }
  | { readonly what: 'resolve'; readonly alert: Alert }

function changesOf(
  measures: readonly Measure[],
  ruleOf: (kind: AlertKind) => AlertRule,
  open: readonly Alert[],
): readonly Change[] {
  const isSame = (one: Pick<Alert, 'kind' | 'subject'>) => (other: Pick<Alert, 'kind' | 'subject'>) =>
    one.kind === other.kind && one.subject === other.subject
  const resolved = open.filter((alert) => {
    const value = measures.find(isSame(alert))?.value
    return decide(ruleOf(alert.kind), value, true) === 'resolve'
  })
  const fired = measures.filter(
    (measure) => !open.some(isSame(measure)) && decide(ruleOf(measure.kind), measure.value, false) === 'fire',
  )
  return [
    ...resolved.map((alert) => ({ what: 'resolve', alert }) as const),
    ...fired.map((measure) => ({ what: 'fire', measure, rule: ruleOf(measure.kind) }) as const),
  ]
}

async function writeChanges(database: Database, account: AccountRef, changes: readonly Change[]): Promise<void> {
  await database.transaction(async (connection) => {
    await lockAccount(connection, account)
    const now = await readClock(connection)
    for (const change of changes) {
      const alert =
        change.what === 'fire'
          ? await fire(connection, account, change, now)
          : await resolve(connection, account, change.alert, now)
      if (alert === undefined) continue
      await writeEvent(connection, account, change.what === 'fire' ? 'alert.fired' : 'alert.resolved', {
        kind: alert.kind,
        subject: alert.subject === '' ? null : alert.subject,
        level: alert.level,
        message: alert.message,
        fired_at: alert.firedAt.toISOString(),
      })
      if (change.what === 'fire') await queueAlertMail(connection, account, alert, now)
    }
  })
}

async function fire(
  connection: Connection,
  { partition, accountId }: AccountRef,
  { measure, rule }: Extract<Change, { what: 'fire' }>,
  now: Date,
): Promise<Alert | undefined> {
  const { kind, subject, level, words, value } = measure
  return rowOf<Alert>(
    connection.query(
      `insert into alerts as a (partition, account_id, kind, subject, level, message, value, fired_at)
     values ($1, $2, $3, $4, $5, $6, $7, $8)
     on conflict (partition, account_id, kind, subject) do update
        set level = excluded.level, message = excluded.message, value = excluded.value, fired_at = excluded.fired_at, resolved_at = null
      where a.resolved_at is not null
     returning ${alertColumns}`,
      [partition, accountId, kind, subject, level, `${words}${limitWords(rule)}`, value, now],
    ),
  )
}

async function resolve(
  connection: Connection,
  { partition, accountId }: AccountRef,
  { kind, subject }: Alert,
  now: Date,
): Promise<Alert | undefined> {
  return rowOf<Alert>(
    connection.query(
      `update alerts set resolved_at = $5
      where partition = $1 and account_id = $2 and kind = $3 and subject = $4 and resolved_at is null returning ${alertColumns}`,
      [partition, accountId, kind, subject, now],
    ),
  )
}

function limitWords({ kind, threshold }: AlertRule): string {
  const limit = threshold!
  const words = {
    usdc: () => `${format(fromAtomic(limit))} USDC`,
    days: () => `${limit} ${limit === 1n ? 'day' : 'days'}`,
    times: () => `${limit} times the usual`,
    percent: () => `${limit} %`,
    minutes: () => `${limit} ${limit === 1n ? 'minute' : 'minutes'}`,
    none: () => undefined,
  }[alertKinds[kind].unit]()
  return words === undefined ? '' : ` Your warning is set to ${words}.`
}

/** Deletes alerts that were resolved a month ago, and mails that could not be sent for a day. */
export async function deleteOldAlerts(database: Database): Promise<void> {
  const now = (await readClock(database)).getTime()
  for (const partition of await listPartitions(database)) {
    await database.query('delete from alerts where partition = $1 and resolved_at < $2', [
      partition,
      new Date(now - resolvedDays * 86_400_000),
    ])
    await database.query('delete from alert_mails where partition = $1 and created_at < $2', [
      partition,
      new Date(now - 86_400_000),
    ])
  }
}

/** Deletes the rules, alerts and mail of a closed account. Call it in a transaction that holds the account's lock. */
export async function deleteAlertsOf(connection: Connection, { partition, accountId }: AccountRef): Promise<void> {
  const owned = [partition, accountId]
  await connection.query('delete from alert_rules where partition = $1 and account_id = $2', owned)
  await connection.query('delete from alerts where partition = $1 and account_id = $2', owned)
  await connection.query('delete from alert_emails where partition = $1 and account_id = $2', owned)
  await connection.query('delete from alert_mails where partition = $1 and account_id = $2', owned)
}

const alertColumns = 'kind, subject, level, message, fired_at, resolved_at'
