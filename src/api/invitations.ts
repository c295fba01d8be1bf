import {
  acceptInvitation,
  createInvitation,
  findInvitation,
  type Invitation,
  invitationLink,
  listInvitations,
  revokeInvitation,
} from '../identity/invitations.ts'
import { switchAccount } from '../identity/sessions.ts'
import { findAccount } from '../ledger/accounts.ts'
import type { AnswerOf } from '../openapi/contract.ts'
import { memberContracts } from '../openapi/contracts/members.ts'
import { requireRecentSignIn } from './gate.ts'
import { readLimit } from './keys.ts'
import { logAccountEvent } from './log-account-event.ts'
import { renderLimit } from './members.ts'
import { type ApiRouter, NotFoundError } from './router.ts'
import type { ApiServices } from './services.ts'

/** Invitations of new members. */
export function routeInvitations(router: ApiRouter, services: ApiServices): void {
  const { database, site } = services

  router.at(memberContracts.listInvitations).answer(async ({ owner }) => {
    const invitations = await listInvitations(database, owner)
    return { object: 'list', data: invitations.map(renderInvitation), has_more: false, next_cursor: null }
  })

  router.at(memberContracts.createInvitation).answer(async (call) => {
    const { session, body } = call
    requireRecentSignIn(session)
    const { id, token } = await database.transaction(async (connection) => {
      const { session: invitedBy } = await call.lockAccess(connection)
      const created = await createInvitation(connection, session, {
        role: body.role,
        limit: readLimit(body.limit) ?? undefined,
        limitWindow: body.limit_window,
        invitedBy,
      })
      const facts = { invitation_id: created.id, role: body.role }
      await logAccountEvent({ ...services, database: connection }, 'member_invited', call, facts)
      return created
    })
    const invitation = (await listInvitations(database, session)).find((open) => open.id === id)
    if (invitation === undefined) throw new NotFoundError()
    return { ...renderInvitation(invitation), url: invitationLink(site.publicUrl, token) }
  })

  router.at(memberContracts.revokeInvitation).answer(async (call) => {
    const { session, parameters } = call
    await database.transaction(async (connection) => {
      await call.lockAccess(connection)
      if (!(await revokeInvitation(connection, session, parameters.id))) throw new NotFoundError()
      const facts = { invitation_id: parameters.id }
      await logAccountEvent({ ...services, database: connection }, 'invitation_revoked', call, facts)
    })
    return undefined
  })

  router.at(memberContracts.findInvitation).answer(async ({ body }) => {
    const { account, role, invitedBy, expiresAt } = await findInvitation(database, body.token)
    const { name } = (await findAccount(database, account.partition, account.accountId))!
    return {
      object: 'invitation_details',
      account_name: name,
      role,
      invited_by: invitedBy ?? null,
      expires_at: expiresAt.toISOString(),
    }
  })

  router.at(memberContracts.acceptInvitation).answer(async (call) => {
    const { session, body } = call
    const { account } = await database.transaction(async (connection) => {
      const accepted = await acceptInvitation(connection, body.token, session.personId)
      if (accepted.joined) {
        const facts = { member_id: session.personId, name: session.personName, role: accepted.invitation.role }
        const actor = { ...call, owner: accepted.account }
        await logAccountEvent({ ...services, database: connection }, 'member_joined', actor, facts)
      }
      return accepted
    })
    if ((await switchAccount(database, session, account.accountId)) === undefined) throw new NotFoundError()
    return undefined
  })
}

function renderInvitation(invitation: Invitation): Omit<AnswerOf<typeof memberContracts.createInvitation>, 'url'> {
  return {
    object: 'invitation',
    id: invitation.id,
    role: invitation.role,
    ...renderLimit(invitation),
    invited_by: invitation.invitedBy ?? null,
    created_at: invitation.createdAt.toISOString(),
    expires_at: invitation.expiresAt.toISOString(),
  }
}
