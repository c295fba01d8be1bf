import type { AccountRef } from './account-ref.ts'
import type { Connection } from './database.ts'

/** Every type of event. docs/webhooks.md says when each is written and what it contains. */
export const eventTypes = [
  'request.ended',
  'request.refused',
  'deposit.seen',
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
  'owner.changed',
  'wallet.added',
  'wallet.removed',
  'passkey.added',
  'passkey.removed',
  'webhook.disabled',
  'alert.fired',
  'alert.resolved',
] as const
export type EventType = (typeof eventTypes)[number]

/** Written only while a live view of the account is open; no webhook endpoint can subscribe to them. */
type LiveEventType = 'requests.started' | 'requests.ended' | 'deposit.updated' | 'account.changed'

/**
 * Writes an event in the caller's transaction if a webhook endpoint subscribes to its type, or a live view of the account is open: the
 * event exists exactly if the change does. Locks the account if so. The ledger's own functions write events about money.
 */
export async function writeEvent(
  connection: Connection,
  { partition, accountId }: AccountRef,
  type: EventType | LiveEventType,
  data: Readonly<Record<string, unknown>>,
): Promise<void> {
  await connection.query('select write_events($1, array[row($2::uuid, $3, $4::jsonb)::event_call])', [
    partition,
    accountId,
    type,
    JSON.stringify(data),
  ])
}
