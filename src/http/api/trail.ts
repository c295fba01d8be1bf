import { type AccountEvent, type LogActor, writeAccountLog } from '../../db/account-log.ts'
import type { AccountRef } from '../../db/account-ref.ts'
import type { Connection } from '../../db/database.ts'
import type { ManagementBearer } from '../../identity/management-keys.ts'
import type { Session } from '../../identity/sessions.ts'
import type { Visitor } from '../visitor.ts'
import type { ApiServices } from './services.ts'

/** Who did it, and from where. */
export type Actor = {
  readonly owner: AccountRef
  readonly session: Session | undefined
  readonly managementKey?: ManagementBearer | undefined
  readonly visitor: Visitor
}

/** Ids, names, amounts and addresses of the chain: never a secret. */
type Facts = {
  readonly key_id?: string
  readonly management_key_id?: string
  readonly member_id?: string
  readonly invitation_id?: string
  readonly name?: string
  readonly role?: string
  readonly scopes?: readonly string[]
  readonly changed?: readonly string[]
  readonly limit?: string | null
  readonly address?: string
  readonly passkey_id?: string
  readonly withdrawal_id?: string
  readonly webhook_id?: string
  readonly amount?: string
}

/**
 * Records what was done to an account: a row of its log, which members see, and a line of the service's log. Give it the connection of
 * the transaction that makes the change, as `database`, where there is one.
 */
export async function logAccountEvent(
  { log, database }: Pick<ApiServices, 'log'> & { readonly database: Connection },
  event: AccountEvent,
  actor: Actor,
  facts: Facts = {},
): Promise<void> {
  const { owner, session, visitor } = actor
  const { network } = visitor
  await writeAccountLog(database, owner, { event, actor: actorOf(actor), facts })
  // Names are words of customers: they stay in the account's log.
  const { name: _, ...told } = facts
  log.info({ event, account_id: owner.accountId, method: session?.method, network, ...told }, 'account')
}

function actorOf({ session, managementKey, visitor: { network } }: Actor): LogActor {
  if (session !== undefined) {
    const { personId, personName, method } = session
    return { kind: 'person', id: personId, name: personName, method, network }
  }
  if (managementKey !== undefined) {
    return { kind: 'management_key', id: managementKey.managementKeyId, name: managementKey.name, network }
  }
  return { kind: 'service', network }
}
