import type { AccountRef } from './account-ref.ts'
import type { Connection } from './database.ts'

/** Every type of event; docs/webhooks.md says when each is written and what is in it. */
export const eventTypes = [
  'request.ended',
  'request.refused',
  'deposit.credited',
  'payment.settled',
  'payment.failed',
  'withdrawal.updated',
  'key.created',
  'key.updated',
  'key.revoked',
  'key.limit_reached',
  'session.created',
  'member.changed',
  'webhook.disabled',
] as const
export type EventType = (typeof eventTypes)[number]

/**
 * Writes an event in the caller's transaction, if somebody listens to its type: it is there exactly if the change is. Locks the account
 * if somebody listens. Events about money are written by the ledger's own functions.
 */
export async function writeEvent(
  connection: Connection,
  { partition, accountId }: AccountRef,
  type: EventType,
  data: Readonly<Record<string, unknown>>,
): Promise<void> {
  await connection.query('select write_events($1, array[row($2::uuid, $3, $4::jsonb)::event_call])', [
    partition,
    accountId,
    type,
    JSON.stringify(data),
  ])
}
