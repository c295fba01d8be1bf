import { randomUUID } from 'node:crypto'
import type { AccountRef } from '../db/account-ref.ts'
import type { Connection, Database } from '../db/database.ts'
import { writeEvent } from '../db/write-event.ts'
import { createToken, hashToken } from './secret-token.ts'

export const signInMethods = ['wallet', 'passkey', 'link', 'local'] as const
export type SignInMethod = (typeof signInMethods)[number]

/** Somebody who is signed in. */
export type Session = AccountRef & {
  readonly id: string
  readonly method: SignInMethod
  readonly browser: string | undefined
  /** The instant of signing in. */
  readonly createdAt: Date
  readonly lastUsedAt: Date
  readonly expiresAt: Date
  /** Signed in so lately that no new sign-in is needed to move money or to change who may sign in. */
  readonly isRecent: boolean
}

const idleSecondsMax = 30 * 60
export const sessionSecondsMax = 12 * 60 * 60
export const recentSecondsMax = 15 * 60
const sessionsPerAccountMax = 50
const browserLengthMax = 200
const tokenPattern = /^[A-Za-z0-9_-]{43}$/

// All times are the database's: nodes need not agree on theirs.
const alive = `expires_at > now() and last_used_at > now() - interval '${idleSecondsMax} seconds'`
const columns = `id, partition, account_id, method, browser, created_at, last_used_at, expires_at,
  created_at > now() - interval '${recentSecondsMax} seconds' as is_recent`

/** Opens a session and returns the token for its cookie, which is stored nowhere. */
export async function openSession(
  connection: Connection,
  account: AccountRef,
  method: SignInMethod,
  browser: string | undefined,
): Promise<{ readonly token: string; readonly session: Session }> {
  const token = createToken()
  const [row] = await connection.query<SessionRow>(
    `insert into sessions (token_hash, id, partition, account_id, method, browser, expires_at)
     values ($1, $2, $3, $4, $5, $6, clock_timestamp() + interval '${sessionSecondsMax} seconds') returning ${columns}`,
    [
      hashToken(token),
      randomUUID(),
      account.partition,
      account.accountId,
      method,
      browser?.slice(0, browserLengthMax) ?? null,
    ],
  )
  await connection.query(
    `delete from sessions where account_id = $1 and id in
       (select id from sessions where account_id = $1 order by last_used_at desc, id offset ${sessionsPerAccountMax})`,
    [account.accountId],
  )
  const session = readSession(row!)
  await writeEvent(connection, account, 'session.created', { id: session.id, method, browser: session.browser ?? null })
  return { token, session }
}

/** The session of a cookie, while it lasts. Using it keeps it alive, written down once a minute at most. */
export async function findSession(database: Database, token: string): Promise<Session | undefined> {
  if (!tokenPattern.test(token)) return undefined
  const hash = hashToken(token)
  const [row] = await database.queryPrepared<SessionRow & { readonly is_stale: boolean }>(
    'find_session',
    `select ${columns}, last_used_at < clock_timestamp() - interval '1 minute' as is_stale
       from sessions where token_hash = $1 and ${alive}`,
    [hash],
  )
  if (row?.is_stale === true) {
    await database.query('update sessions set last_used_at = now() where token_hash = $1', [hash])
  }
  return row === undefined ? undefined : readSession(row)
}

export async function listSessions(database: Database, { accountId }: AccountRef): Promise<readonly Session[]> {
  const rows = await database.query<SessionRow>(
    `select ${columns} from sessions where account_id = $1 and ${alive} order by last_used_at desc, id`,
    [accountId],
  )
  return rows.map(readSession)
}

/** Whether a session goes on: a stream that outlives its session must end with it. */
export async function isSessionAlive(database: Database, id: string): Promise<boolean> {
  const [row] = await database.query(`select from sessions where id = $1 and ${alive}`, [id])
  return row !== undefined
}

/** False when the account has no such session. */
export async function endSession(connection: Connection, { accountId }: AccountRef, id: string): Promise<boolean> {
  const rows = await connection.query('delete from sessions where id = $1 and account_id = $2 returning id', [
    id,
    accountId,
  ])
  return rows.length > 0
}

export async function endOtherSessions(database: Database, { accountId, id }: Session): Promise<void> {
  await database.query('delete from sessions where account_id = $1 and id <> $2', [accountId, id])
}

/** Deletes what can no longer be used: expired sessions, challenges, links and device logins. */
export async function forgetSignIns(database: Database): Promise<void> {
  await database.query(`delete from sessions where not (${alive})`)
  await database.query('delete from sign_in_challenges where expires_at < now()')
  await database.query('delete from login_links where expires_at < now()')
  await database.query('delete from device_logins where expires_at < now()')
}

type SessionRow = {
  readonly id: string
  readonly partition: number
  readonly account_id: string
  readonly method: SignInMethod
  readonly browser: string | null
  readonly created_at: Date
  readonly last_used_at: Date
  readonly expires_at: Date
  readonly is_recent: boolean
}

function readSession(row: SessionRow): Session {
  return {
    id: row.id,
    partition: row.partition,
    accountId: row.account_id,
    method: row.method,
    browser: row.browser ?? undefined,
    createdAt: row.created_at,
    lastUsedAt: row.last_used_at,
    expiresAt: row.expires_at,
    isRecent: row.is_recent,
  }
}
