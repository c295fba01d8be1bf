import { randomUUID } from 'node:crypto'
import type { AccountRef } from './account-ref.ts'
import { readClock } from './clock.ts'
import type { Connection, Database } from './database.ts'
import { chunkRowsMax, deleteInChunks } from './delete-in-chunks.ts'
import { rowsOf } from './rows.ts'

/** Events of the account log. docs/observability.md lists them. */
export const accountEvents = [
  'signed_in',
  'device_confirmed',
  'key_created',
  'key_changed',
  'key_rotated',
  'key_revoked',
  'management_key_created',
  'management_key_changed',
  'management_key_rotated',
  'management_key_revoked',
  'wallet_added',
  'wallet_removed',
  'passkey_added',
  'passkey_removed',
  'member_invited',
  'invitation_revoked',
  'member_joined',
  'member_changed',
  'member_removed',
  'member_left',
  'account_changed',
  'owner_changed',
  'account_closed',
  'account_reopened',
  'account_suspended',
  'account_resumed',
  'account_adjusted',
  'login_link_created',
  'withdrawal_requested',
  'refused',
  'webhook_created',
  'webhook_changed',
  'webhook_removed',
  'alert_email_set',
  'alert_email_confirmed',
  'alert_email_removed',
] as const
export type AccountEvent = (typeof accountEvents)[number]

export const actorKinds = ['person', 'api_key', 'management_key', 'operator', 'service'] as const

/** Who did it, and from where. */
export type LogActor = {
  readonly kind: (typeof actorKinds)[number]
  readonly id?: string | undefined
  /** The name at that time: people are renamed and keys are revoked. */
  readonly name?: string | undefined
  readonly method?: string | undefined
  readonly network?: string | undefined
}

/** A command on the operator's machine. */
export const operatorActor: LogActor = { kind: 'operator' }

export type LogRow = {
  readonly id: string
  readonly event: AccountEvent
  readonly actor: LogActor
  readonly facts: Readonly<Record<string, unknown>>
  readonly createdAt: Date
}

const logDays = 400
export const logRowsPerAccountMax = 10_000

/** Writes in the caller's transaction, so that the row exists exactly if the change does. Never put a secret into the facts. */
export async function writeAccountLog(
  connection: Connection,
  { partition, accountId }: AccountRef,
  { event, actor, facts = {} }: Pick<LogRow, 'event' | 'actor'> & Partial<Pick<LogRow, 'facts'>>,
): Promise<void> {
  await connection.query(
    `insert into account_log (partition, account_id, id, event, actor_kind, actor_id, actor_name, method, network, facts)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10::jsonb)`,
    [
      partition,
      accountId,
      randomUUID(),
      event,
      actor.kind,
      actor.id ?? null,
      actor.name ?? null,
      actor.method ?? null,
      actor.network?.slice(0, 64) ?? null,
      JSON.stringify(facts),
    ],
  )
}

export type LogPage = {
  readonly below?: { readonly at: Date; readonly id: string } | undefined
  readonly limit: number
}

/** Newest first. */
export async function readAccountLog(
  database: Database,
  { partition, accountId }: AccountRef,
  { below, limit }: LogPage,
): Promise<readonly LogRow[]> {
  const rows = await rowsOf<StoredLogRow>(
    database.query(
      `select id, event, actor_kind, actor_id, actor_name, method, network, facts, created_at from account_log
      where partition = $1 and account_id = $2
        and ($3::timestamptz is null or created_at < $3::timestamptz + interval '1 millisecond')
        and ($3::timestamptz is null or (date_trunc('milliseconds', created_at), id) < ($3, $4::uuid))
      order by date_trunc('milliseconds', created_at) desc, id desc limit $5`,
      [partition, accountId, below?.at ?? null, below?.id ?? null, limit],
    ),
  )
  return rows.map(({ actorKind, actorId, actorName, method, network, ...row }) => ({
    ...row,
    actor: { kind: actorKind, id: actorId, name: actorName, method, network },
  }))
}

type StoredLogRow = Omit<LogRow, 'actor'> & {
  readonly actorKind: LogActor['kind']
  readonly actorId: string | undefined
  readonly actorName: string | undefined
  readonly method: string | undefined
  readonly network: string | undefined
}

/** Deletes rows after 400 days, and the oldest rows of accounts above `rowsMax`. */
export async function deleteOldLogRows(database: Database, rowsMax: number = logRowsPerAccountMax): Promise<void> {
  const before = new Date((await readClock(database)).getTime() - logDays * 86_400_000)
  const partitions = await database.query<{ partition: number }>('select distinct partition from account_log')
  for (const { partition } of partitions) {
    await deleteInChunks(() =>
      database.query(
        `delete from account_log l using (
           select x.account_id, x.id from account_log x where x.partition = $1 and x.created_at < $2
            order by x.created_at limit ${chunkRowsMax}) old
          where l.partition = $1 and l.account_id = old.account_id and l.id = old.id returning 1`,
        [partition, before],
      ),
    )
    const large = await database.query<{ account_id: string }>(
      'select account_id from account_log where partition = $1 group by account_id having count(*) > $2',
      [partition, rowsMax],
    )
    for (const { account_id } of large) await deleteExcess({ partition, accountId: account_id }, rowsMax)
  }

  async function deleteExcess({ partition, accountId }: AccountRef, keep: number): Promise<void> {
    await deleteInChunks(() =>
      database.query(
        `delete from account_log l using (
           select x.id from account_log x where x.partition = $1 and x.account_id = $2
            order by x.created_at desc, x.id desc offset $3 limit ${chunkRowsMax}) old
          where l.partition = $1 and l.account_id = $2 and l.id = old.id returning 1`,
        [partition, accountId, keep],
      ),
    )
  }
}
