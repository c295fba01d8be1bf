import { z } from 'zod'
import { accountEvents, actorKinds } from '../../db/account-log.ts'
import { limitWindows } from '../../identity/api-keys.ts'
import { roles } from '../../identity/roles.ts'
import { contract } from '../contract.ts'
import { instant, keyLimit, list, name, optionalMoney, page, text, uuid } from '../shapes.ts'

export const role = z.enum(roles).meta({
  description:
    'viewer: reads. developer: makes and uses own keys. admin: all keys, members, webhooks, settings. owner: withdrawals, owner address, closing',
})
export const invitationToken = text(200)
  .min(1)
  .meta({ description: 'The token of an invitation link (`/login#invitation=…`)' })

const limit = keyLimit.nullable().optional().meta({
  description: 'What all keys of the member may spend together, per limit_window; null: no limit',
})
const limitWindow = z.enum(limitWindows)

const member = z
  .object({
    object: z.literal('member'),
    id: uuid,
    name: z.string(),
    role,
    ...optionalMoney('limit'),
    limit_window: limitWindow,
    joined_at: instant,
    last_active_at: instant.nullable().meta({ description: 'To the minute' }),
  })
  .meta({ id: 'Member' })

const invitation = z
  .object({
    object: z.literal('invitation'),
    id: uuid,
    role,
    ...optionalMoney('limit'),
    limit_window: limitWindow,
    invited_by: z.string().nullable(),
    created_at: instant,
    expires_at: instant,
  })
  .meta({ id: 'Invitation' })

const fact = z.string().optional()

/** What an event of the log is about; each event has some of these. */
const logFacts = z.looseObject({
  key_id: fact,
  management_key_id: fact,
  webhook_id: fact,
  withdrawal_id: fact,
  adjustment_id: fact,
  invitation_id: fact,
  member_id: fact,
  passkey_id: fact,
  name: z.string().nullish(),
  role: fact,
  address: fact,
  amount: fact.meta({ description: 'Atomic USDC' }),
  limit: z.string().nullish().meta({ description: 'Atomic USDC' }),
  changed: z.array(z.string()).optional().meta({ description: 'Names of the members that were changed' }),
  scopes: z.array(z.string()).optional(),
  operation: fact.meta({ description: 'What was refused' }),
  needed: fact.meta({ description: 'The role that it needs' }),
})

const logEntry = z
  .object({
    object: z.literal('log_entry'),
    id: uuid,
    event: z.enum(accountEvents),
    actor: z.object({
      kind: z.enum(actorKinds),
      id: uuid.nullable(),
      name: z.string().nullable().meta({ description: 'As it was then' }),
    }),
    method: z.string().nullable().meta({ description: 'How the person had signed in' }),
    network: z.string().nullable().meta({ description: 'An IPv4 address, or the /56 of an IPv6 address' }),
    facts: logFacts,
    created_at: instant,
  })
  .meta({ id: 'LogEntry' })

export const memberContracts = {
  listMembers: contract({
    operation: 'listMembers',
    method: 'GET',
    path: '/api/members',
    summary: 'List the members of the account with their roles and last activity',
    access: 'session',
    role: 'viewer',
    answer: list(member),
  }),
  updateMember: contract({
    operation: 'updateMember',
    method: 'PATCH',
    path: '/api/members/{id}',
    summary:
      'Change the role or spending limit of a member; needs a recent sign-in. Any change of role ends the open invitations that the member created; a member who is no longer an admin also loses management keys and the secrets of API keys of others, a viewer also API keys. The last owner stays owner',
    access: 'session',
    role: 'admin',
    parameters: z.object({ id: uuid }),
    body: z.strictObject({ role: role.optional(), limit, limit_window: limitWindow.optional() }),
    answer: member,
  }),
  removeMember: contract({
    operation: 'removeMember',
    method: 'DELETE',
    path: '/api/members/{id}',
    summary:
      'Remove a member; needs a recent sign-in. Ends the sessions in this account and revokes the API keys and management keys that the member created, and the secrets of others that the member rotated',
    access: 'session',
    role: 'admin',
    parameters: z.object({ id: uuid }),
    status: 204,
  }),
  leaveAccount: contract({
    operation: 'leaveAccount',
    method: 'DELETE',
    path: '/api/membership',
    summary:
      'Leave the account and end your sessions in it. Your keys of the account are revoked. The last owner cannot leave',
    access: 'session',
    role: 'viewer',
    status: 204,
  }),
  updatePerson: contract({
    operation: 'updatePerson',
    method: 'PATCH',
    path: '/api/person',
    summary: 'Change your name, which the members of your accounts see',
    access: 'session',
    role: 'viewer',
    body: z.strictObject({ name }),
    status: 204,
  }),
  switchAccount: contract({
    operation: 'switchAccount',
    method: 'POST',
    path: '/api/session/account',
    summary: 'Switch this session to another of your accounts',
    access: 'session',
    role: 'viewer',
    isForPerson: true,
    body: z.strictObject({ account_id: uuid }),
    status: 204,
  }),
  listInvitations: contract({
    operation: 'listInvitations',
    method: 'GET',
    path: '/api/invitations',
    summary: 'List the invitations that can still be used',
    access: 'session',
    role: 'admin',
    answer: list(invitation),
  }),
  createInvitation: contract({
    operation: 'createInvitation',
    method: 'POST',
    path: '/api/invitations',
    summary:
      'Create a one-time invitation link, valid for seven days; needs a recent sign-in. The link is returned only once',
    access: 'session',
    role: 'admin',
    body: z.strictObject({ role, limit, limit_window: limitWindow.optional() }),
    status: 201,
    answer: invitation
      .extend({ url: z.string().meta({ description: 'Returned only once' }) })
      .meta({ id: 'NewInvitation' }),
  }),
  revokeInvitation: contract({
    operation: 'revokeInvitation',
    method: 'DELETE',
    path: '/api/invitations/{id}',
    summary: 'Revoke an invitation that was not used',
    access: 'session',
    role: 'admin',
    parameters: z.object({ id: uuid }),
    status: 204,
  }),
  findInvitation: contract({
    operation: 'findInvitation',
    method: 'POST',
    path: '/api/auth/invitation',
    summary: 'Get the account and role of an invitation link, before signing in',
    access: 'public',
    body: z.strictObject({ token: invitationToken }),
    answer: z
      .object({
        object: z.literal('invitation_details'),
        account_name: z.string(),
        role,
        invited_by: z.string().nullable(),
        expires_at: instant,
      })
      .meta({ id: 'InvitationDetails' }),
  }),
  acceptInvitation: contract({
    operation: 'acceptInvitation',
    method: 'POST',
    path: '/api/auth/invitation/accept',
    summary: 'Join the account of an invitation as the signed-in person, and switch this session to it',
    access: 'session',
    role: 'viewer',
    isForPerson: true,
    body: z.strictObject({ token: invitationToken }),
    status: 204,
  }),
  listAccountLog: contract({
    operation: 'listAccountLog',
    method: 'GET',
    path: '/api/log',
    summary: 'Read the account log, newest first: who did what and when. Kept for 400 days, at most 10,000 entries',
    access: 'session',
    role: 'admin',
    scope: 'log:read',
    query: z.object(page),
    answer: list(logEntry),
  }),
} as const
