import { randomUUID } from 'node:crypto'
import type { AccountRef } from '../db/account-ref.ts'
import type { Connection, Database } from '../db/database.ts'
import { rowOf, rowsOf } from '../db/rows.ts'
import { writeEvent } from '../db/write-event.ts'
import type { Role } from './roles.ts'
import { createToken, hashToken } from './secret-token.ts'
import { SignInFailedError } from './sign-in-error.ts'

export const signInMethods = ['wallet', 'passkey', 'link', 'local'] as const
export type SignInMethod = (typeof signInMethods)[number]

/** A signed-in person and the account that the person currently works in. */
export type Session = AccountRef & {
  readonly id: string
  readonly personId: string
  readonly personName: string
  /** In this account; read with every request. */
  readonly role: Role
  readonly method: SignInMethod
  readonly browser: string | undefined
  /** When the person signed in. */
  readonly createdAt: Date
  readonly lastUsedAt: Date
  readonly expiresAt: Date
  /** Signed in recently enough to move money or change credentials without signing in again. */
  readonly isRecent: boolean
}

const idleSecondsMax = 30 * 60
export const sessionSecondsMax = 12 * 60 * 60
export const recentSecondsMax = 15 * 60
const sessionsPerPersonMax = 50
const browserLengthMax = 200
const tokenPattern = /^[A-Za-z0-9_-]{43}$/

// All times come from the database's clock, so clocks of nodes may differ.
const alive = `s.expires_at > now() and s.last_used_at > now() - interval '${idleSecondsMax} seconds'`
// Joined with memberships: a removed member has no session in the account, even if a row remains.
const columns = `s.id, s.partition, s.account_id, s.person_id, p.name as person_name, m.role, s.method, s.browser, s.created_at,
  s.last_used_at, s.expires_at, s.created_at > now() - interval '${recentSecondsMax} seconds' as is_recent`
const rows = `sessions s join people p on p.id = s.person_id
  join memberships m on m.partition = s.partition and m.account_id = s.account_id and m.person_id = s.person_id`

export type SignIn = { readonly personId: string; readonly account: AccountRef }

/** Returns the token for the session cookie. The database stores only its hash. */
export async function openSession(
  connection: Connection,
  { personId, account }: SignIn,
  method: SignInMethod,
  browser: string | undefined,
): Promise<{ readonly token: string; readonly session: Session }> {
  const token = createToken()
  const hash = hashToken(token)
  await connection.query(
    `insert into sessions (token_hash, id, person_id, partition, account_id, method, browser, expires_at)
     values ($1, $2, $3, $4, $5, $6, $7, clock_timestamp() + interval '${sessionSecondsMax} seconds')`,
    [
      hash,
      randomUUID(),
      personId,
      account.partition,
      account.accountId,
      method,
      browser?.slice(0, browserLengthMax) ?? null,
    ],
  )
  await connection.query(
    `delete from sessions where person_id = $1 and id in
       (select id from sessions where person_id = $1 order by last_used_at desc, id offset ${sessionsPerPersonMax})`,
    [personId],
  )
  const session = await rowOf<Session>(
    connection.query(`select ${columns} from ${rows} where s.token_hash = $1`, [hash]),
  )
  if (session === undefined) throw new NotAMemberError()
  await touchMembership(connection, personId, account)
  await writeEvent(connection, account, 'session.created', { id: session.id, method, browser: session.browser ?? null })
  return { token, session }
}

/** Undefined when the session has expired. Each use extends it; the database is updated at most once a minute. */
export async function findSession(connection: Connection, token: string): Promise<Session | undefined> {
  if (!tokenPattern.test(token)) return undefined
  const hash = hashToken(token)
  const row = await rowOf<Session & { readonly isStale: boolean }>(
    connection.queryPrepared(
      'find_session',
      `select ${columns}, s.last_used_at < clock_timestamp() - interval '1 minute' as is_stale
       from ${rows} where s.token_hash = $1 and ${alive}`,
      [hash],
    ),
  )
  if (row === undefined) return undefined
  const { isStale, ...session } = row
  if (isStale) {
    await connection.query('update sessions set last_used_at = now() where token_hash = $1', [hash])
    await touchMembership(connection, session.personId, session)
  }
  return session
}

async function touchMembership(connection: Connection, personId: string, account: AccountRef): Promise<void> {
  await connection.query(
    'update memberships set last_active_at = now() where partition = $1 and account_id = $2 and person_id = $3',
    [account.partition, account.accountId, personId],
  )
}

/** All sessions of a person, in any account. */
export async function listSessions(database: Database, personId: string): Promise<readonly Session[]> {
  return rowsOf<Session>(
    database.query(
      `select ${columns} from ${rows} where s.person_id = $1 and ${alive} order by s.last_used_at desc, s.id`,
      [personId],
    ),
  )
}

/** Long streams check this: they must end when their session ends or moves to another account. */
export async function isSessionAlive(connection: Connection, { id, accountId }: Session): Promise<boolean> {
  const [row] = await connection.query(`select from ${rows} where s.id = $1 and s.account_id = $2 and ${alive}`, [
    id,
    accountId,
  ])
  return row !== undefined
}

/** Moves a session to another account of the person. Undefined when the person is not a member there. */
export async function switchAccount(
  database: Database,
  session: Session,
  accountId: string,
): Promise<Session | undefined> {
  const [member] = await database.query<{ partition: number }>(
    'select partition from memberships where person_id = $1 and account_id = $2',
    [session.personId, accountId],
  )
  if (member === undefined) return undefined
  const account = { partition: member.partition, accountId }
  await database.query('update sessions set partition = $2, account_id = $3 where id = $1', [
    session.id,
    account.partition,
    account.accountId,
  ])
  await touchMembership(database, session.personId, account)
  return rowOf<Session>(database.query(`select ${columns} from ${rows} where s.id = $1 and ${alive}`, [session.id]))
}

/** False when the person has no such session. */
export async function endSession(connection: Connection, personId: string, id: string): Promise<boolean> {
  const ended = await connection.query('delete from sessions where id = $1 and person_id = $2 returning id', [
    id,
    personId,
  ])
  return ended.length > 0
}

export async function endOtherSessions(database: Database, { personId, id }: Session): Promise<void> {
  await database.query('delete from sessions where person_id = $1 and id <> $2', [personId, id])
}

/** Deletes expired sessions, challenges, login links, invitations and device logins. */
export async function deleteExpiredSignIns(database: Database): Promise<void> {
  await database.query(`delete from sessions s where not (${alive})`)
  await database.query('delete from invitations where expires_at < now()')
  await database.query('delete from sign_in_challenges where expires_at < now()')
  await database.query('delete from login_links where expires_at < now()')
  await database.query('delete from device_logins where expires_at < now()')
}

/** The member was removed between the proof and the session. */
export class NotAMemberError extends SignInFailedError {
  constructor() {
    super('You are no longer a member of this account. Sign in again.')
  }
}
