import { createHash, randomBytes, randomUUID } from 'node:crypto'
import type { AccountRef } from '../db/account-ref.ts'
import { readClock } from '../db/clock.ts'
import type { Connection } from '../db/database.ts'
import { wakeHolder } from '../db/exclusive.ts'
import { lockAccount } from '../db/lock-account.ts'
import { rowOf } from '../db/rows.ts'
import { ServiceError } from '../errors.ts'
import type { Alert } from './alerts.ts'

/** Where the alerts of an account are mailed. Nothing but the link is sent before the address is verified. */
export type AlertEmail = { readonly address: string; readonly verifiedAt: Date | undefined }

const linkHours = 24
/** A link can be sent to any address, even of a person who did not ask for it, so an account may send only a few per day. */
const linksPerDayMax = 3
const accountsPerAddressMax = 5
const mailsPerHourMax = 10
/** More than alerts may use: an attacker who causes alerts cannot use up the mails that report the attack. */
const securityMailsPerHourMax = 30
const dayMs = 86_400_000
const hourMs = 3_600_000

export async function readEmail(
  connection: Connection,
  { partition, accountId }: AccountRef,
): Promise<AlertEmail | undefined> {
  return rowOf<AlertEmail>(
    connection.query(
      'select address, verified_at from alert_emails where partition = $1 and account_id = $2 and address is not null',
      [partition, accountId],
    ),
  )
}

/**
 * Call it in a transaction: it locks the account. Sets the address and mails it a link. Alerts are mailed once a person who is signed in
 * to the account has opened the link.
 */
export async function setEmail(
  connection: Connection,
  account: AccountRef,
  address: string,
  linkOf: (token: string) => string,
): Promise<void> {
  const { partition, accountId } = account
  const token = randomBytes(32).toString('base64url')
  await lockAccount(connection, account)
  await refuseUnfunded(connection, account)
  await refuseCrowd(connection, account, address)
  await queueSecurityMail(connection, account, 'The e-mail address for alerts was changed')
  const now = await readClock(connection)
  const [row] = await connection.query(
    `insert into alert_emails as e (partition, account_id, address, token_hash, token_until, links, links_from)
       values ($1, $2, $3, $4, $5, 1, $6)
       on conflict (partition, account_id) do update
          set address = excluded.address, token_hash = excluded.token_hash, token_until = excluded.token_until, verified_at = null,
              links = case when e.links_from > $7 then e.links + 1 else 1 end,
              links_from = case when e.links_from > $7 then e.links_from else excluded.links_from end
        where e.links_from <= $7 or e.links < ${linksPerDayMax}
       returning 1`,
    [
      partition,
      accountId,
      address,
      hashOf(token),
      new Date(now.getTime() + linkHours * hourMs),
      now,
      new Date(now.getTime() - dayMs),
    ],
  )
  if (row === undefined)
    throw new ServiceError(
      'rate_limited',
      `${linksPerDayMax} confirmation links were sent within a day, which is the maximum. Try again tomorrow.`,
      {
        retryAfterMs: dayMs,
      },
    )
  await queueMail(connection, account, now, {
    address,
    subject: 'Confirm this address for alerts',
    body: `To get alerts of your Penny account at this address, open this link in the browser in which you are signed in:

${linkOf(token)}

It works for ${linkHours} hours. If you did not ask for this, ignore this message: nothing more will be sent.
`,
  })
}

/**
 * The caller must be signed in to the account of the link, so a mail scanner that opens it verifies nothing. Returns the address, or
 * undefined if the link is wrong or has expired.
 */
export async function verifyEmail(
  connection: Connection,
  { partition, accountId }: AccountRef,
  token: string,
): Promise<string | undefined> {
  const [row] = await connection.query<{ address: string }>(
    `update alert_emails set verified_at = $4, token_hash = null, token_until = null
      where partition = $1 and account_id = $2 and token_hash = $3 and token_until > $4 and address is not null returning address`,
    [partition, accountId, hashOf(token), await readClock(connection)],
  )
  return row?.address
}

/** Call it in a transaction: it locks the account. The count of links that were sent stays. Returns the address, if there was one. */
export async function removeEmail(connection: Connection, account: AccountRef): Promise<string | undefined> {
  await lockAccount(connection, account)
  const removed = await readEmail(connection, account)
  await queueSecurityMail(connection, account, 'The e-mail address for alerts was removed')
  // An address that was never verified gets nothing more. A verified one still gets what happened before.
  if (removed !== undefined && removed.verifiedAt === undefined)
    await connection.query('delete from alert_mails where partition = $1 and account_id = $2 and address = $3', [
      account.partition,
      account.accountId,
      removed.address,
    ])
  await connection.query(
    `update alert_emails set address = null, verified_at = null, token_hash = null, token_until = null
      where partition = $1 and account_id = $2`,
    [account.partition, account.accountId],
  )
  return removed?.address
}

/** Queues a mail in the transaction that fires the alert, if the account has a verified address and is below its limit of mails. */
export async function queueAlertMail(
  connection: Connection,
  account: AccountRef,
  { kind, message }: Alert,
  now: Date,
): Promise<void> {
  const address = await countMail(connection, account, now, mailsPerHourMax)
  if (address === undefined) return
  await queueMail(connection, account, now, {
    address,
    subject: `Penny alert: ${kind.replaceAll('_', ' ')}`,
    body: `${message}

You get this because alerts by e-mail are on (dashboard, Settings, Alerts). An alert is sent once, and again only after it was resolved.
`,
  })
}

/** Queues a mail about a change that a thief would make, in the transaction of the change. Removing the address does not stop it. */
export async function queueSecurityMail(connection: Connection, account: AccountRef, change: string): Promise<void> {
  const now = await readClock(connection)
  const address = await countMail(connection, account, now, securityMailsPerHourMax)
  if (address === undefined) return
  await queueMail(connection, account, now, {
    address,
    subject: `Penny account: ${change}`,
    body: `${change} (Penny account ${account.accountId}, ${now.toISOString()}).

If it was not you or another owner, act now: sign in, and under Settings remove wallets, passkeys and members that you do not know, end
other sessions, and set the withdrawal address back. A changed withdrawal address takes effect after a waiting period.
`,
  })
}

/** The verified address, if there is one and fewer mails than this were sent to it within an hour. */
async function countMail(
  connection: Connection,
  { partition, accountId }: AccountRef,
  now: Date,
  perHourMax: number,
): Promise<string | undefined> {
  const [row] = await connection.query<{ address: string }>(
    `update alert_emails
        set sent = case when sent_from > $3 then sent + 1 else 1 end, sent_from = case when sent_from > $3 then sent_from else $4 end
      where partition = $1 and account_id = $2 and verified_at is not null
        and (sent_from is null or sent_from <= $3 or sent < $5)
     returning address`,
    [partition, accountId, new Date(now.getTime() - hourMs), now, perHourMax],
  )
  return row?.address
}

type NewMail = { readonly address: string; readonly subject: string; readonly body: string }

async function queueMail(
  connection: Connection,
  { partition, accountId }: AccountRef,
  now: Date,
  { address, subject, body }: NewMail,
): Promise<void> {
  await connection.query(
    `insert into alert_mails (partition, id, account_id, address, subject, body, due_at, created_at)
     values ($1, $2, $3, $4, $5, $6, $7, $7)`,
    [partition, randomUUID(), accountId, address, subject, body, now],
  )
  await wakeHolder(connection, 'alerts')
}

/** Accounts are free; without this limit, many accounts could flood an address with links. */
async function refuseUnfunded(connection: Connection, { partition, accountId }: AccountRef): Promise<void> {
  const [row] = await connection.query<{ deposited: bigint }>(
    'select deposited from accounts where partition = $1 and id = $2',
    [partition, accountId],
  )
  if (row!.deposited === 0n)
    throw new ServiceError('invalid_value', 'Alerts by e-mail need an account that has deposited. Deposit first.')
}

async function refuseCrowd(connection: Connection, { accountId }: AccountRef, address: string): Promise<void> {
  const [row] = await connection.query<{ count: bigint }>(
    'select count(*) as count from alert_emails where lower(address) = lower($1) and account_id <> $2',
    [address, accountId],
  )
  if (row!.count >= BigInt(accountsPerAddressMax))
    throw new ServiceError(
      'invalid_value',
      `${accountsPerAddressMax} accounts use this e-mail address, which is the maximum. Use another one.`,
    )
}

function hashOf(token: string): Buffer {
  return createHash('sha256').update(token).digest()
}
