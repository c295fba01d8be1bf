import { randomUUID } from 'node:crypto'
import type { AccountRef } from '../db/account-ref.ts'
import { readClock } from '../db/clock.ts'
import type { Connection, Database } from '../db/database.ts'
import { rowOf, rowsOf } from '../db/rows.ts'
import { ServiceError } from '../errors.ts'
import type { Usdc } from '../money/usdc.ts'
import type { LimitWindow } from './api-keys.ts'
import { addMember, findMember, RoleAboveError } from './members.ts'
import { lockOpenAccount } from './open-account.ts'
import { type Role, reaches } from './roles.ts'
import { createToken, hashToken } from './secret-token.ts'

export type Invitation = {
  readonly id: string
  readonly role: Role
  readonly limit: Usdc | undefined
  readonly limitWindow: LimitWindow
  /** The inviter's name; undefined when that person was deleted. */
  readonly invitedBy: string | undefined
  readonly createdAt: Date
  readonly expiresAt: Date
}

export const invitationDays = 7
const invitationsPerAccountMax = 50

/** The token is in the fragment: browsers do not send it to servers, so it reaches no log. */
export function invitationLink(publicUrl: string, token: string): string {
  return `${publicUrl}/login#invitation=${token}`
}

export type NewInvitation = {
  readonly role: Role
  readonly limit: Usdc | undefined
  readonly limitWindow: LimitWindow | undefined
  readonly invitedBy: { readonly personId: string; readonly role: Role }
}

/** Call it in a transaction. The token is returned here only; the database stores its hash. */
export async function createInvitation(
  connection: Connection,
  account: AccountRef,
  { role, limit, limitWindow, invitedBy }: NewInvitation,
): Promise<{ readonly id: string; readonly token: string }> {
  if (!reaches(invitedBy.role, role)) throw new RoleAboveError(invitedBy.role)
  await lockOpenAccount(connection, account)
  const [open] = await connection.query<{ count: number }>(
    `select count(*)::int as count from invitations where account_id = $1 and used_at is null and expires_at > clock_timestamp()`,
    [account.accountId],
  )
  if (open!.count >= invitationsPerAccountMax)
    throw new ServiceError(
      'invalid_value',
      `The account has ${invitationsPerAccountMax} open invitations, which is the maximum. Revoke one first.`,
    )
  const token = createToken()
  const id = randomUUID()
  await connection.query(
    `insert into invitations (token_hash, id, partition, account_id, role, spending_limit, limit_window, invited_by, expires_at)
     values ($1, $2, $3, $4, $5, $6, $7, $8, clock_timestamp() + interval '${invitationDays} days')`,
    [
      hashToken(token),
      id,
      account.partition,
      account.accountId,
      role,
      limit ?? null,
      limitWindow ?? 'lifetime',
      invitedBy.personId,
    ],
  )
  return { id, token }
}

/** Invitations that can still be used, newest first. */
export async function listInvitations(database: Database, { accountId }: AccountRef): Promise<readonly Invitation[]> {
  return rowsOf<Invitation>(
    database.query(
      `select ${columns} from ${invitations} where i.account_id = $1 and i.used_at is null and i.expires_at > clock_timestamp()
      order by i.created_at desc, i.id`,
      [accountId],
    ),
  )
}

/** False when the account has no such invitation or it was used. */
export async function revokeInvitation(
  connection: Connection,
  { accountId }: AccountRef,
  id: string,
): Promise<boolean> {
  const rows = await connection.query(
    'delete from invitations where id = $1 and account_id = $2 and used_at is null returning id',
    [id, accountId],
  )
  return rows.length > 0
}

/** Throws `InvitationGoneError` when it is unknown, revoked or expired. */
export async function findInvitation(
  connection: Connection,
  token: string,
): Promise<Invitation & { readonly account: AccountRef; readonly usedBy: string | undefined }> {
  const row = await rowOf<Invitation & FoundRow>(
    connection.query(
      `select ${columns}, i.partition, i.account_id, i.used_by, i.expires_at <= clock_timestamp() as is_expired
       from ${invitations} where i.token_hash = $1`,
      [hashToken(token)],
    ),
  )
  if (row === undefined) throw new InvitationGoneError('is invalid or was revoked')
  const { partition, accountId, isExpired, ...invitation } = row
  if (isExpired) throw new InvitationGoneError(`has expired: an invitation is valid for ${invitationDays} days`)
  return { ...invitation, account: { partition, accountId } }
}

/**
 * Makes the person a member and consumes the invitation; call it in a transaction. Of two concurrent calls one succeeds. Idempotent: a
 * member who accepts the same invitation again gets the same account.
 */
export async function acceptInvitation(
  connection: Connection,
  token: string,
  personId: string,
): Promise<{ readonly account: AccountRef; readonly invitation: Invitation; readonly joined: boolean }> {
  const { account } = await findInvitation(connection, token)
  await lockOpenAccount(connection, account)
  // Read again under the lock: another person may have used it in the meantime.
  const { usedBy, ...invitation } = await findInvitation(connection, token)
  const isMember = (await findMember(connection, account, personId)) !== undefined
  if (usedBy === personId && isMember) return { account, invitation, joined: false }
  if (usedBy !== undefined) throw new InvitationGoneError('was already used')
  await addMember(connection, account, { personId, ...invitation })
  await connection.query('update invitations set used_by = $2, used_at = $3 where id = $1', [
    invitation.id,
    personId,
    await readClock(connection),
  ])
  return { account, invitation, joined: true }
}

const columns =
  'i.id, i.role, i.spending_limit as "limit", i.limit_window, p.name as invited_by, i.created_at, i.expires_at'
const invitations = 'invitations i left join people p on p.id = i.invited_by'

type FoundRow = {
  readonly partition: number
  readonly accountId: string
  readonly usedBy: string | undefined
  readonly isExpired: boolean
}

export class InvitationGoneError extends ServiceError {
  constructor(reason: string) {
    super('not_found', `This invitation ${reason}. Ask an owner or admin of the account for a new one.`)
  }
}
