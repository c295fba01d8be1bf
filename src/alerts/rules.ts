import type { AccountRef } from '../db/account-ref.ts'
import { readClock } from '../db/clock.ts'
import type { Connection } from '../db/database.ts'
import { rowsOf } from '../db/rows.ts'
import { type AlertKind, type AlertRule, alertKindNames, initialRule } from './kinds.ts'

type StoredRule = Omit<AlertRule, 'isInitial'> & { readonly accountId: string }

/** All kinds, in their order. */
export async function readRules(connection: Connection, account: AccountRef): Promise<readonly AlertRule[]> {
  const rules = await readRulesOf(connection, account.partition, [account.accountId])
  return alertKindNames.map((kind) => rules(account.accountId, kind))
}

/** The rules of many accounts, by account id. */
export async function readRulesOf(
  connection: Connection,
  partition: number,
  accountIds: readonly string[],
): Promise<(accountId: string, kind: AlertKind) => AlertRule> {
  const rows = await rowsOf<StoredRule>(
    connection.query(
      'select account_id, kind, threshold, rearm from alert_rules where partition = $1 and account_id = any ($2::uuid[])',
      [partition, accountIds],
    ),
  )
  const found = new Map(
    rows.map(({ accountId, ...rule }) => [`${accountId} ${rule.kind}`, { ...rule, isInitial: false }]),
  )
  return (accountId, kind) => found.get(`${accountId} ${kind}`) ?? initialRule(kind)
}

/** Without a threshold the rule is off. */
export async function setRule(
  connection: Connection,
  { partition, accountId }: AccountRef,
  { kind, threshold, rearm }: Omit<AlertRule, 'isInitial'>,
): Promise<void> {
  await connection.query(
    `insert into alert_rules (partition, account_id, kind, threshold, rearm, changed_at) values ($1, $2, $3, $4, $5, $6)
     on conflict (partition, account_id, kind) do update
        set threshold = excluded.threshold, rearm = excluded.rearm, changed_at = excluded.changed_at`,
    [partition, accountId, kind, threshold ?? null, rearm ?? null, await readClock(connection)],
  )
}
