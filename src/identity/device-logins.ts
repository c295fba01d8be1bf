import { randomInt } from 'node:crypto'
import type { AccountRef } from '../db/account-ref.ts'
import { readClock } from '../db/clock.ts'
import type { Connection, Database } from '../db/database.ts'
import { rowOf } from '../db/rows.ts'
import { ServiceError } from '../errors.ts'
import { createToken, hashToken } from './secret-token.ts'
import type { Session } from './sessions.ts'

// The device flow of RFC 8628: a terminal asks, a signed-in person confirms, the terminal polls and gets a key once. The key is
// created by that poll, so its secret is never stored.

export const deviceLoginSecondsMax = 10 * 60
export const pollSecondsMin = 2
/** Pending logins per network. Generous, because an office shares one network. */
export const waitingPerNetworkMax = 20
const slowDownSeconds = 5
/** Polls may arrive this much early: client clocks and networks jitter. */
const earlySecondsMax = 0.5
/** A login confirmed in its last second must still reach the terminal. */
const deliverySecondsMin = 60
const codeAttemptsMax = 3

// No vowels, so no words; no letters that look alike. 20^8 codes, as RFC 8628 suggests.
const codeLetters = 'BCDFGHJKLMNPQRSTVWXZ'
const codeLength = 8

export const deviceLoginStatuses = ['pending', 'confirmed', 'declined'] as const

/** A pending login, as shown to the signed-in person. */
export type DeviceLogin = {
  readonly userCode: string
  readonly machine: string
  readonly network: string
  readonly status: (typeof deviceLoginStatuses)[number]
  readonly createdAt: Date
  readonly expiresAt: Date
}

/** Throws when the network has too many pending logins. */
export async function startDeviceLogin(
  database: Database,
  { machine, network }: Pick<DeviceLogin, 'machine' | 'network'>,
): Promise<{ readonly deviceCode: string; readonly userCode: string }> {
  const deviceCode = createToken()
  return database.transaction(async (connection) => {
    // Serialized per network: concurrent starts must not exceed the limit together.
    await connection.query(`select pg_advisory_xact_lock(hashtextextended('device_logins ' || $1, 0))`, [network])
    const [waiting] = await connection.query<{ count: bigint }>(
      `select count(*) from device_logins where network = $1 and expires_at > clock_timestamp() and status = 'pending'`,
      [network],
    )
    if (Number(waiting!.count) >= waitingPerNetworkMax)
      throw new ServiceError(
        'rate_limited',
        `${waitingPerNetworkMax} logins from your network are waiting for confirmation, which is the limit. Finish or cancel one, or wait until they expire after ${deviceLoginSecondsMax / 60} minutes.`,
        { retryAfterMs: 60_000 },
      )
    for (let attempt = 0; attempt < codeAttemptsMax; attempt += 1) {
      const userCode = Array.from({ length: codeLength }, () => codeLetters[randomInt(codeLetters.length)]).join('')
      const rows = await connection.query(
        `insert into device_logins (device_hash, user_code, machine, network, interval_seconds, expires_at)
         values ($1, $2, $3, $4, ${pollSecondsMin}, clock_timestamp() + interval '${deviceLoginSecondsMax} seconds')
         on conflict do nothing returning user_code`,
        [hashToken(deviceCode), userCode, machine, network],
      )
      if (rows.length > 0) return { deviceCode, userCode }
    }
    throw new Error('no free user code')
  })
}

export type Poll =
  | { readonly status: 'pending' | 'slow_down'; readonly intervalSeconds: number }
  | { readonly status: 'declined' | 'expired' }
  | { readonly status: 'confirmed'; readonly account: AccountRef; readonly personId: string; readonly terms: unknown }

/** Polls a login. Consumes a confirmed one: of two concurrent polls, one gets it. */
export async function pollDeviceLogin(database: Database, deviceCode: string): Promise<Poll> {
  const hash = hashToken(deviceCode)
  const row = await rowOf<{ status: DeviceLogin['status']; intervalSeconds: number; early: boolean }>(
    database.query(
      `update device_logins d
        set polled_at = $2, interval_seconds = least(d.interval_seconds + case when o.early then ${slowDownSeconds} else 0 end, 60)
       from (select device_hash, coalesce(extract(epoch from $2 - polled_at) < interval_seconds - ${earlySecondsMax}, false) as early
               from device_logins where device_hash = $1 and expires_at > $2 for update) o
      where d.device_hash = o.device_hash
      returning d.status, d.interval_seconds, o.early`,
      [hash, await readClock(database)],
    ),
  )
  if (row === undefined) return { status: 'expired' }
  if (row.status === 'pending')
    return { status: row.early ? 'slow_down' : 'pending', intervalSeconds: row.intervalSeconds }
  const taken = await rowOf<TakenLogin>(
    database.query(
      'delete from device_logins where device_hash = $1 returning partition, account_id, person_id, terms',
      [hash],
    ),
  )
  if (taken === undefined) return { status: 'expired' }
  if (taken.accountId === undefined) return { status: 'declined' }
  return {
    status: 'confirmed',
    account: { partition: taken.partition!, accountId: taken.accountId },
    personId: taken.personId!,
    terms: taken.terms,
  }
}

type TakenLogin = {
  readonly partition: number | undefined
  readonly accountId: string | undefined
  readonly personId: string | undefined
  readonly terms: unknown
}

/** The terminal gave up: the login can no longer be confirmed. */
export async function cancelDeviceLogin(database: Database, deviceCode: string): Promise<void> {
  await database.query('delete from device_logins where device_hash = $1', [hashToken(deviceCode)])
}

/** A pending login, or one that this account has confirmed. Throws for those of other accounts, as for unknown codes. */
export async function findDeviceLogin(
  connection: Connection,
  { accountId }: AccountRef,
  userCode: string,
): Promise<DeviceLogin> {
  const row = await rowOf<DeviceLogin>(
    connection.query(
      `select ${columns} from device_logins
      where user_code = $1 and expires_at > clock_timestamp() and (status = 'pending' or account_id = $2)`,
      [normalized(userCode), accountId],
    ),
  )
  if (row === undefined) throw new DeviceCodeGoneError()
  return row
}

/** Of two concurrent answers the first one counts; the second one throws. */
export async function confirmDeviceLogin(
  connection: Connection,
  { partition, accountId, personId }: Pick<Session, 'partition' | 'accountId' | 'personId'>,
  userCode: string,
  terms: object,
): Promise<DeviceLogin> {
  const row = await rowOf<DeviceLogin>(
    connection.query(
      `update device_logins
        set status = 'confirmed', partition = $2, account_id = $3, terms = $4::jsonb, person_id = $5,
            expires_at = greatest(expires_at, now() + interval '${deliverySecondsMin} seconds')
      where user_code = $1 and expires_at > now() and status = 'pending' returning ${columns}`,
      [normalized(userCode), partition, accountId, JSON.stringify(terms), personId],
    ),
  )
  if (row === undefined) throw new DeviceCodeGoneError()
  return row
}

export async function declineDeviceLogin(database: Database, userCode: string): Promise<DeviceLogin> {
  const row = await rowOf<DeviceLogin>(
    database.query(
      `update device_logins set status = 'declined'
      where user_code = $1 and expires_at > now() and status = 'pending' returning ${columns}`,
      [normalized(userCode)],
    ),
  )
  if (row === undefined) throw new DeviceCodeGoneError()
  return row
}

/** Formatted for people: `WDJB-MJHT`. */
export function shownUserCode(userCode: string): string {
  return `${userCode.slice(0, 4)}-${userCode.slice(4)}`
}

const columns = 'user_code, machine, network, status, created_at, expires_at'

/** People leave out the dash, add spaces and type small letters. */
function normalized(userCode: string): string {
  return userCode.toUpperCase().replace(/[^A-Z]/g, '')
}

export class DeviceCodeGoneError extends ServiceError {
  constructor() {
    super(
      'not_found',
      'This code is unknown, already used or expired. Run penny login again in your terminal to get a new one.',
    )
  }
}
