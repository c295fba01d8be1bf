import type { AccountEvent } from '../db/account-log.ts'
import type { AccountRef } from '../db/account-ref.ts'
import type { Connection } from '../db/database.ts'
import { type EventType, writeEvent } from '../db/write-event.ts'
import { queueSecurityMail } from './emails.ts'

type Facts = { readonly address?: string; readonly passkey_id?: string }
type Notice = { readonly type: EventType; readonly text: (facts: Facts) => string }

/** What a thief with a stolen session changes on the way to the money. */
const notices: Partial<Record<AccountEvent, Notice>> = {
  owner_changed: { type: 'owner.changed', text: ({ address }) => `The withdrawal address was changed to ${address}` },
  wallet_added: { type: 'wallet.added', text: ({ address }) => `A member added the wallet ${address} to sign in with` },
  wallet_removed: { type: 'wallet.removed', text: ({ address }) => `A member removed the wallet ${address}` },
  passkey_added: { type: 'passkey.added', text: () => 'A member added a passkey to sign in with' },
  passkey_removed: { type: 'passkey.removed', text: () => 'A member removed a passkey' },
}

/** Whether the event changes how a person signs in, and so concerns all accounts of the person. */
export function isOfCredentials(event: AccountEvent): boolean {
  return event !== 'owner_changed' && notices[event] !== undefined
}

/** Writes the webhook event and the mail about a change, in the transaction of the change. Does nothing for other events. */
export async function reportSecurityChange(
  connection: Connection,
  accounts: readonly AccountRef[],
  event: AccountEvent,
  { address, passkey_id, ...rest }: Facts & { readonly member_id?: string | undefined },
): Promise<void> {
  const notice = notices[event]
  if (notice === undefined) return
  const data = {
    ...(address !== undefined && { address }),
    ...(passkey_id !== undefined && { id: passkey_id }),
    ...rest,
  }
  for (const account of accounts) {
    await writeEvent(connection, account, notice.type, data)
    await queueSecurityMail(connection, account, notice.text({ ...(address !== undefined && { address }) }))
  }
}
