import { isOfCredentials, reportSecurityChange } from '../alerts/security.ts'
import { type AccountEvent, type LogActor, operatorActor, writeAccountLog } from '../db/account-log.ts'
import type { AccountRef } from '../db/account-ref.ts'
import type { Connection } from '../db/database.ts'
import type { Visitor } from '../http/visitor.ts'
import type { ManagementBearer } from '../identity/management-keys.ts'
import { listAccountsOf } from '../identity/members.ts'
import type { Session } from '../identity/sessions.ts'
import type { Contract } from '../openapi/contract.ts'
import type { ApiServices } from './services.ts'

/** Who did it, and from where. */
export type Actor = {
  readonly owner: AccountRef
  readonly session: Session | undefined
  readonly managementKey?: ManagementBearer | undefined
  readonly asOperator?: boolean
  /** During a sign-in, when there is no session yet. */
  readonly person?: Pick<Session, 'personId' | 'personName'> | undefined
  readonly visitor: Visitor
}

/** Ids, names, amounts, chain addresses. Never a secret. */
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
  readonly operation?: string
  readonly needed?: string
}

/**
 * Records a change of an account: a row in the account log, which members see, and a line in the service's log; of a change that a thief
 * would make also a mail and a webhook event. Pass the connection of the transaction that makes the change as `database`.
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
  const isOfPerson = session !== undefined && isOfCredentials(event)
  const accounts = isOfPerson ? await listAccountsOf(database, session.personId) : [owner]
  const { address, passkey_id } = facts
  await reportSecurityChange(database, accounts, event, {
    ...(address !== undefined && { address }),
    ...(passkey_id !== undefined && { passkey_id }),
    ...(session !== undefined && { member_id: session.personId }),
  })
  // Names are customers' data: they stay in the account log.
  const { name: _, ...loggable } = facts
  log.info({ event, account_id: owner.accountId, method: session?.method, network, ...loggable }, 'account')
}

function actorOf({ session, person = session, managementKey, asOperator, visitor: { network } }: Actor): LogActor {
  if (asOperator === true) return operatorActor
  if (person !== undefined) {
    return { kind: 'person', id: person.personId, name: person.personName, method: session?.method, network }
  }
  if (managementKey !== undefined) {
    return { kind: 'management_key', id: managementKey.managementKeyId, name: managementKey.name, network }
  }
  return { kind: 'service', network }
}

const refusalMsMin = 60 * 60_000
const refusalsRememberedMax = 10_000

/**
 * Records that a member tried something reserved for owners, such as a withdrawal. At most once an hour per person and route, so that a
 * member cannot push other rows out of the log. Never throws: the response is a refusal anyway.
 */
export function recordRefusals(
  services: ApiServices,
): (contract: Contract, session: Session, visitor: Visitor) => Promise<void> {
  const loggedMs = new Map<string, number>()
  return async ({ operation, role }, session, visitor) => {
    const key = `${session.accountId} ${session.personId} ${operation}`
    if (services.now() - (loggedMs.get(key) ?? Number.NEGATIVE_INFINITY) < refusalMsMin) return
    if (loggedMs.size >= refusalsRememberedMax) loggedMs.clear()
    loggedMs.set(key, services.now())
    const facts = { operation, ...(role !== undefined && { needed: role }) }
    await logAccountEvent(services, 'refused', { owner: session, session, visitor }, facts).catch((error: unknown) =>
      services.log.warn({ err: error }, 'writing the account log failed'),
    )
  }
}
