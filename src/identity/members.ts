import type { AccountRef } from '../db/account-ref.ts'
import { readClock } from '../db/clock.ts'
import type { Connection } from '../db/database.ts'
import { lockAccount } from '../db/lock-account.ts'
import { rowOf, rowsOf } from '../db/rows.ts'
import { writeEvent } from '../db/write-event.ts'
import { ServiceError } from '../errors.ts'
import type { Usdc } from '../money/usdc.ts'
import type { LimitWindow } from './api-keys.ts'
import { checkMemberLimit } from './member-limit.ts'
import { lockOpenAccount } from './open-account.ts'
import { createPerson, lockPerson } from './people.ts'
import { type RevokedSecrets, revokeSecrets } from './revoke-secrets.ts'
import { type Role, reaches } from './roles.ts'

export type Member = {
  readonly personId: string
  readonly name: string
  readonly role: Role
  /** What all keys of the member together may spend; undefined: no limit. */
  readonly limit: Usdc | undefined
  readonly limitWindow: LimitWindow
  readonly joinedAt: Date
  /** Accurate to a minute; undefined before the first request. */
  readonly lastActiveAt: Date | undefined
}

/** One of the accounts a person can switch to. */
export type MemberAccount = AccountRef & { readonly name: string; readonly role: Role }

export const membersPerAccountMax = 200
const accountsPerPersonMax = 100

export type NewMember = {
  readonly personId: string
  readonly role: Role
  readonly limit?: Usdc | undefined
  readonly limitWindow?: LimitWindow | undefined
}

/** Locks the account, then the person. Throws when the account is closed or full, or the person is already a member. */
export async function addMember(connection: Connection, account: AccountRef, member: NewMember): Promise<void> {
  await lockOpenAccount(connection, account)
  if (!(await lockPerson(connection, member.personId)))
    throw new ServiceError('not_found', 'No such member in this account.')
  const known = await findMember(connection, account, member.personId)
  if (known !== undefined)
    throw new ServiceError(
      'already_member',
      `You are already a member of this account, as ${known.role}. The invitation was not used.`,
    )
  const [count] = await connection.query<{ members: number; accounts: number }>(
    `select (select count(*) from memberships where partition = $1 and account_id = $2)::int as members,
            (select count(*) from memberships where person_id = $3)::int as accounts`,
    [account.partition, account.accountId, member.personId],
  )
  if (count!.members >= membersPerAccountMax)
    throw new ServiceError(
      'invalid_value',
      `The account has ${membersPerAccountMax} members, which is the maximum. Remove one first.`,
    )
  if (count!.accounts >= accountsPerPersonMax)
    throw new ServiceError(
      'invalid_value',
      `You are a member of ${accountsPerPersonMax} accounts, which is the maximum. Leave one first.`,
    )
  const now = await readClock(connection)
  await connection.query(
    `insert into memberships (partition, account_id, person_id, role, spending_limit, limit_window, limit_since, owner_since, joined_at)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
    [
      account.partition,
      account.accountId,
      member.personId,
      member.role,
      member.limit ?? null,
      member.limitWindow ?? 'lifetime',
      member.limit === undefined ? null : now,
      member.role === 'owner' ? now : null,
      now,
    ],
  )
  await writeEvent(connection, account, 'member.changed', { id: member.personId, change: 'joined', role: member.role })
}

/**
 * The owner that a printed login link signs in as: the first owner without other accounts, so that the link gives access to this account
 * only. Creates one if there is none. Call it in a transaction.
 */
export async function findLinkOwner(connection: Connection, account: AccountRef): Promise<string> {
  await lockOpenAccount(connection, account)
  const owners = await rowsOf<{ readonly personId: string }>(
    connection.query(
      `select person_id from memberships where partition = $1 and account_id = $2 and role = 'owner' order by joined_at, person_id`,
      [account.partition, account.accountId],
    ),
  )
  const ids = owners.map(({ personId }) => personId)
  const busy = await rowsOf<{ readonly personId: string }>(
    connection.query('select person_id from memberships where person_id = any ($1::uuid[]) and account_id <> $2', [
      ids,
      account.accountId,
    ]),
  )
  const found = ids.find((id) => !busy.some(({ personId }) => personId === id))
  if (found !== undefined) return found
  const personId = await createPerson(connection, 'Owner')
  await addMember(connection, account, { personId, role: 'owner' })
  return personId
}

/** The account that a person used last; undefined for a person without accounts. */
export async function findLastAccount(connection: Connection, personId: string): Promise<AccountRef | undefined> {
  return rowOf<AccountRef>(
    connection.query(
      `select partition, account_id from memberships where person_id = $1
      order by last_active_at desc nulls last, joined_at, account_id limit 1`,
      [personId],
    ),
  )
}

export async function listAccountsOf(connection: Connection, personId: string): Promise<readonly MemberAccount[]> {
  return rowsOf<MemberAccount>(
    connection.query(
      `select m.partition, m.account_id, a.name, m.role
       from memberships m join accounts a on a.partition = m.partition and a.id = m.account_id
      where m.person_id = $1 order by a.name, m.account_id limit ${accountsPerPersonMax}`,
      [personId],
    ),
  )
}

/** Before the lock of the person: a change of credentials writes events of all accounts. In the order of every lock of several accounts. */
export async function lockAccountsOf(connection: Connection, personId: string): Promise<void> {
  const accounts = await listAccountsOf(connection, personId)
  for (const account of accounts.toSorted((one, other) => (one.accountId < other.accountId ? -1 : 1)))
    await lockAccount(connection, account)
}

export async function listMembers(
  connection: Connection,
  { partition, accountId }: AccountRef,
): Promise<readonly Member[]> {
  return rowsOf<Member>(
    connection.query(
      `select ${memberColumns} where m.partition = $1 and m.account_id = $2
      order by m.joined_at, m.person_id limit ${membersPerAccountMax}`,
      [partition, accountId],
    ),
  )
}

export async function findMember(
  connection: Connection,
  { partition, accountId }: AccountRef,
  personId: string,
): Promise<Member | undefined> {
  return rowOf<Member>(
    connection.query(`select ${memberColumns} where m.partition = $1 and m.account_id = $2 and m.person_id = $3`, [
      partition,
      accountId,
      personId,
    ]),
  )
}

export type MemberChanges = {
  readonly role?: Role | undefined
  /** `null` removes the limit. */
  readonly limit?: Usdc | null | undefined
  readonly limitWindow?: LimitWindow | undefined
}

/** Who changes whom. */
export type MemberCall = {
  readonly by: { readonly role: Role; readonly personId: string }
  readonly personId: string
  readonly ownerCooldownMs: number
}

/**
 * Changes a member; call it in a transaction. The role of the caller must not be below the member's old or new role, and only owners
 * change their own limit. A demoted member also loses the secrets that the old role could create or receive (`revokeSecrets`). Any other role ends open invitations.
 */
export async function changeMember(
  connection: Connection,
  account: AccountRef,
  { by, personId, ownerCooldownMs }: MemberCall,
  changes: MemberChanges,
): Promise<RevokedSecrets> {
  await lockOpenAccount(connection, account)
  const member = await findMember(connection, account, personId)
  if (member === undefined) throw new ServiceError('not_found', 'No such member in this account.')
  const role = changes.role ?? member.role
  if (!reaches(by.role, member.role) || !reaches(by.role, role)) throw new RoleAboveError(by.role)
  if (member.role === 'owner' && role !== 'owner')
    await requireAnotherOwner(connection, account, personId, ownerCooldownMs)
  const changesLimit = changes.limit !== undefined || changes.limitWindow !== undefined
  if (changesLimit && by.personId === personId && by.role !== 'owner')
    throw new ServiceError(
      'role_required',
      'Only owners change their own spending limit. Ask another admin or an owner.',
    )
  const limit = changes.limit === undefined ? member.limit : (changes.limit ?? undefined)
  const limitWindow = changes.limitWindow ?? member.limitWindow
  const isNewLimit = member.limit === undefined || limitWindow !== member.limitWindow
  await connection.query(
    `update memberships set role = $4, spending_limit = $5, limit_window = $6,
            limit_since = case when $5::bigint is null then null when $7 then $8::timestamptz else limit_since end,
            owner_since = case when $4 <> 'owner' then null when role = 'owner' then owner_since else $8::timestamptz end
      where partition = $1 and account_id = $2 and person_id = $3`,
    [
      account.partition,
      account.accountId,
      personId,
      role,
      limit ?? null,
      limitWindow,
      isNewLimit,
      await readClock(connection),
    ],
  )
  // A demoted owner must not keep a link that makes its bearer an owner.
  if (role !== member.role) await revokeInvitations(connection, account, personId)
  const revoked = await revokeSecrets(connection, account, personId, role)
  await checkMemberLimit(connection, account, personId)
  await writeEvent(connection, account, 'member.changed', { id: personId, change: 'updated', role })
  return revoked
}

/**
 * Ends a membership; call it in a transaction. Ends the person's sessions in the account and revokes every secret the person created or
 * received: API keys, management keys, invitations, pending device logins. Throws for the last owner.
 */
export async function removeMember(
  connection: Connection,
  account: AccountRef,
  { by, personId, ownerCooldownMs }: MemberCall,
): Promise<RevokedSecrets & { readonly member: Member }> {
  await lockOpenAccount(connection, account)
  const member = await findMember(connection, account, personId)
  if (member === undefined) throw new ServiceError('not_found', 'No such member in this account.')
  if (!reaches(by.role, member.role)) throw new RoleAboveError(by.role)
  if (member.role === 'owner') await requireAnotherOwner(connection, account, personId, ownerCooldownMs)
  await connection.query('delete from memberships where partition = $1 and account_id = $2 and person_id = $3', [
    account.partition,
    account.accountId,
    personId,
  ])
  await connection.query('delete from sessions where account_id = $1 and person_id = $2', [account.accountId, personId])
  await revokeInvitations(connection, account, personId)
  const revoked = await revokeSecrets(connection, account, personId, undefined)
  await writeEvent(connection, account, 'member.changed', { id: personId, change: 'removed', role: member.role })
  return { member, ...revoked }
}

/**
 * An owner of before the waiting period must be left, if there is one: a stolen session could otherwise invite an owner of its own, remove
 * all others, and wait until its address for withdrawals takes effect.
 */
async function requireAnotherOwner(
  connection: Connection,
  { partition, accountId }: AccountRef,
  personId: string,
  ownerCooldownMs: number,
): Promise<void> {
  const owners = await rowsOf<{ readonly personId: string; readonly isOld: boolean }>(
    connection.query(
      `select m.person_id, m.owner_since <= greatest(a.created_at + interval '10 seconds', clock_timestamp() - $3 * interval '1 millisecond') as is_old
       from memberships m join accounts a on a.partition = m.partition and a.id = m.account_id
      where m.partition = $1 and m.account_id = $2 and m.role = 'owner'`,
      [partition, accountId, ownerCooldownMs],
    ),
  )
  const others = owners.filter((owner) => owner.personId !== personId)
  if (others.length === 0)
    throw new ServiceError('last_owner', 'This is the last owner of the account. Make another member owner first.')
  if (owners.some(({ isOld }) => isOld) && !others.some(({ isOld }) => isOld))
    throw new ServiceError(
      'last_owner',
      'The other owners became owners recently. Wait until one of them has been an owner for the waiting period.',
    )
}

async function revokeInvitations(connection: Connection, account: AccountRef, personId: string): Promise<void> {
  await connection.query('delete from invitations where account_id = $1 and invited_by = $2 and used_at is null', [
    account.accountId,
    personId,
  ])
}

const memberColumns = `m.person_id, p.name, m.role, m.spending_limit as "limit", m.limit_window, m.joined_at, m.last_active_at
  from memberships m join people p on p.id = m.person_id`

export class RoleAboveError extends ServiceError {
  constructor(by: Role) {
    super(
      'role_required',
      `Your role in this account is ${by}. You cannot change members above it or give a role above it.`,
    )
  }
}
