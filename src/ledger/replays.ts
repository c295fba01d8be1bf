import type { Database } from '../db/database.ts'
import { fromAtomic, type Usdc } from '../money/usdc.ts'
import type { Payer } from './hold-calls.ts'
import { earliestRequestIdSql, type RequestId } from './request-id.ts'

/** Where a request with an Idempotency-Key stands. */
export type ReplayClaim = {
  readonly payer: Payer
  readonly keyHash: Buffer
  readonly bodyHash: Buffer
}

export type EarlierAttempt = {
  readonly requestId: RequestId
  readonly status: 'held' | 'succeeded' | 'failed' | 'cancelled'
  /** A later one was delivered in its place, and its charge was given back. */
  readonly superseded: boolean
}

export type ClaimResult = { readonly claimed: true } | { readonly claimed: false; readonly earlier: EarlierClaim }

/** The attempt that has the key. */
export type EarlierClaim = {
  readonly requestId: RequestId
  readonly sameBody: boolean
  /** `running` while its node lives and has not ended it; `unheld` before it is in the ledger. */
  readonly state: 'unheld' | 'running' | 'answered' | 'unanswered'
  /** What can be given again, once it is answered. */
  readonly answer: string
  /** What it holds, while it runs. */
  readonly hold: { readonly model: string; readonly createdAt: Date; readonly held: Usdc } | undefined
}

/** Claims the key for a request, or tells who has it. */
export async function claimReplay(database: Database, claim: ReplayClaim, requestId: RequestId): Promise<ClaimResult> {
  const { payer, keyHash, bodyHash } = claim
  const inserted = await database.query(
    `insert into replays (partition, account_id, key_hash, body_hash, request_id) values ($1, $2, $3, $4, $5)
     on conflict do nothing returning true`,
    [payer.partition, payer.accountId, keyHash, bodyHash, requestId],
  )
  if (inserted.length > 0) return { claimed: true }
  const [row] = await database.query<ClaimRow>(
    `select p.body_hash, p.request_id, coalesce(p.answer, '') as answer, r.model, r.created_at, r.quote,
            case when p.answer <> '' then 'answered'
                 when p.answer = '' then 'unanswered'
                 when r.id is null then 'unheld'
                 -- Its end may be in the ledger a moment before its answer is: as long as its node lives, that will come.
                 when n.lease_until >= clock_timestamp() then 'running'
                 else 'unanswered' end as state
       from replays p
       left join requests r on r.partition = p.partition and r.id = p.request_id
       left join nodes n on n.id = r.node
      where p.partition = $1 and p.account_id = $2 and p.key_hash = $3`,
    [payer.partition, payer.accountId, keyHash],
  )
  // Deleted between the two statements: its owner was refused, and the key is free again.
  if (row === undefined) return claimReplay(database, claim, requestId)
  const { request_id: earlierId, state, answer, model, created_at: createdAt, quote } = row
  const hold = state === 'running' ? { model: model!, createdAt: createdAt!, held: fromAtomic(quote!) } : undefined
  const sameBody = row.body_hash.equals(bodyHash)
  return { claimed: false, earlier: { requestId: earlierId, sameBody, state, answer, hold } }
}

/** Takes the key over from an attempt that came to nothing. False when somebody else was faster. */
export async function takeOverReplay(
  database: Database,
  { payer, keyHash }: ReplayClaim,
  from: RequestId,
  to: RequestId,
): Promise<boolean> {
  const rows = await database.query(
    `update replays set request_id = $5, answer = null, created_at = clock_timestamp()
      where partition = $1 and account_id = $2 and key_hash = $3 and request_id = $4 returning true`,
    [payer.partition, payer.accountId, keyHash, from, to],
  )
  return rows.length > 0
}

/**
 * Gives the key back to the attempt it was taken from, when that one was charged more: it is what the next one stands for. False
 * when it was not, or the key is somebody else's by now.
 */
export async function handBackReplay(
  database: Database,
  { payer, keyHash }: ReplayClaim,
  from: RequestId,
  to: RequestId,
): Promise<boolean> {
  const rows = await database.query(
    `update replays p set request_id = $5, answer = ''
      where p.partition = $1 and p.account_id = $2 and p.key_hash = $3 and p.request_id = $4
        and (select charged from requests where partition = $1 and id = $5)
          > coalesce((select charged from requests where partition = $1 and id = $4), 0)
      returning true`,
    [payer.partition, payer.accountId, keyHash, from, to],
  )
  return rows.length > 0
}

/** Keeps the answer; without one, keeps that there is none to be given again. */
export async function keepReplay(
  database: Database,
  { payer, keyHash }: ReplayClaim,
  requestId: RequestId,
  answer: string | undefined,
): Promise<void> {
  await database.query(
    'update replays set answer = $5 where partition = $1 and account_id = $2 and key_hash = $3 and request_id = $4',
    [payer.partition, payer.accountId, keyHash, requestId, answer ?? ''],
  )
}

/** Frees the key: the attempt held nothing or delivered nothing. */
export async function releaseReplay(
  database: Database,
  { payer, keyHash }: ReplayClaim,
  requestId: RequestId,
): Promise<void> {
  await database.query(
    'delete from replays where partition = $1 and account_id = $2 and key_hash = $3 and request_id = $4',
    [payer.partition, payer.accountId, keyHash, requestId],
  )
}

/** A retry without an Idempotency-Key stands for attempts that ended so recently. */
export const retryWindowSeconds = 60
const attemptsMax = 20

/**
 * The attempts with this body by this key that are under way or ended within so many seconds, by the database's clock; the newest
 * first. A client that waited for minutes and gave up repeats at once: it is the end that counts, not the beginning.
 */
export async function findAttempts(
  database: Database,
  payer: Payer,
  bodyHash: bigint,
  seconds: number,
): Promise<readonly EarlierAttempt[]> {
  const rows = await database.query<{ id: RequestId; status: EarlierAttempt['status']; superseded: boolean }>(
    `select id, status, error_code is not distinct from 'superseded' as superseded from requests
      where partition = $1 and account_id = $2 and key_id = $3 and body_hash = $4
        and (ended_at is null or ended_at > clock_timestamp() - $5 * interval '1 second')
      -- Not by id: that is by the clock of the node that made it.
      order by created_at desc, id desc limit ${attemptsMax}`,
    [payer.partition, payer.accountId, payer.keyId, bodyHash, seconds],
  )
  return rows.map(({ id, status, superseded }) => ({ requestId: id, status, superseded }))
}

/** Gives back what an attempt was charged, because the same request was answered again. */
export async function refundAttempt(database: Database, payer: Payer, requestId: RequestId): Promise<void> {
  await database.query('select refund_attempt($1, $2, $3)', [payer.partition, payer.accountId, requestId])
}

/** No index leads to the end of a request: what ended just now is looked for among those that came within so many hours. */
const attemptHoursMax = 1

/**
 * The most that retries may yet have given back of what is charged. With an Idempotency-Key: what the attempt was charged that has
 * it and no answer. One under way may have the key from another with the same body, which is given back when it delivers: that one
 * cost at most what this one holds. Without: what attempts were charged that can be repeated, or whose repetition is under way or
 * has just ended. Twice the window, because a retry that came at its end has yet to hold.
 */
export const refundable = `
  with latest as (
    select partition, account_id, key_id, body_hash, created_at from requests
     where status = 'held' and body_hash is not null
     union all
    select partition, account_id, key_id, body_hash, created_at from requests
     where partition in (select distinct partition from accounts) and body_hash is not null
       and ended_at > statement_timestamp() - ${2 * retryWindowSeconds} * interval '1 second'
       and id >= ${earliestRequestIdSql(`statement_timestamp() - ${attemptHoursMax} * interval '1 hour'`)}),
  repeatable as (
    select distinct r.partition, r.id, r.charged from latest l
      join requests r on r.partition = l.partition and r.account_id = l.account_id and r.key_id = l.key_id
                     and r.body_hash = l.body_hash
     where r.charged > 0 and r.ended_at > l.created_at - ${2 * retryWindowSeconds} * interval '1 second')
  select coalesce((select sum(charged) from repeatable), 0)
         + coalesce((select sum(case when r.status = 'held' then r.quote + r.extended else r.charged end)
                       from replays p join requests r on r.partition = p.partition and r.id = p.request_id
                      where coalesce(p.answer, '') = ''), 0)`

/** Answers are kept for a day at most. */
export async function forgetReplays(database: Database, hours: number): Promise<void> {
  await database.query("delete from replays where created_at < clock_timestamp() - $1 * interval '1 hour'", [hours])
}

type ClaimRow = {
  readonly body_hash: Buffer
  readonly request_id: RequestId
  readonly answer: string
  readonly state: EarlierClaim['state']
  readonly model: string | null
  readonly created_at: Date | null
  readonly quote: bigint | null
}
