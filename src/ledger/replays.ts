import type { AccountRef } from '../db/account-ref.ts'
import { readClock } from '../db/clock.ts'
import type { Database } from '../db/database.ts'
import { chunkRowsMax, deleteInChunks } from '../db/delete-in-chunks.ts'
import { fromAtomic, type Usdc } from '../money/usdc.ts'
import { listPartitions } from './accounts.ts'
import type { Payer } from './hold-calls.ts'
import { isAlive } from './nodes.ts'
import { earliestRequestIdSql, type RequestId } from './request-id.ts'

// Claims of retry keys, stored answers, and refunds of attempts that a retry replaced (docs/operations/retry.md).

/** Identifies the request that several attempts share. */
export type ReplayKey = {
  readonly payer: Payer
  readonly keyHash: Buffer
  readonly bodyHash: Buffer
  /** `requests.body_hash` of the attempts; undefined with an Idempotency-Key. */
  readonly attemptHash: bigint | undefined
}

export type ReplayClaim =
  | { readonly state: 'claimed' | 'mismatch' }
  | { readonly state: 'answered'; readonly answer: string }
  /** Its node is serving it, or has its answer in memory. */
  | { readonly state: 'running'; readonly requestId: RequestId; readonly node: string }

type Own = { readonly requestId: RequestId; readonly node: string }

/** Claims the key for a request, or returns the attempt that has it. `answerless` is an attempt that is known to have no answer. */
export async function claimReplay(
  database: Database,
  key: ReplayKey,
  own: Own,
  answerless?: RequestId,
): Promise<ReplayClaim> {
  const claim = await claimOnce(database, key, own, answerless)
  // This node knows its own attempts, even when its lease lapsed for a moment.
  if (claim.state !== 'running' || claim.node === own.node || (await isAlive(database, claim.node))) return claim
  return claimOnce(database, key, own, claim.requestId)
}

async function claimOnce(
  database: Database,
  { payer, keyHash, bodyHash, attemptHash }: ReplayKey,
  own: Own,
  answerless: RequestId | undefined,
): Promise<ReplayClaim> {
  const [row] = await database.query<ClaimRow>(
    'select state, attempt_id, attempt_node, attempt_answer from claim_replay($1, $2, $3, $4, $5, $6, $7, $8, $9)',
    [
      payer.partition,
      payer.accountId,
      payer.keyId,
      keyHash,
      bodyHash,
      own.requestId,
      own.node,
      attemptHash ?? null,
      answerless ?? null,
    ],
  )
  const { state, attempt_id: requestId, attempt_node: node, attempt_answer: answer } = row!
  if (state === 'answered') return { state, answer: answer! }
  if (state === 'running') return { state, requestId, node: node! }
  return { state }
}

type ClaimRow = {
  readonly state: ReplayClaim['state']
  readonly attempt_id: RequestId
  readonly attempt_node: string | null
  readonly attempt_answer: string | null
}

/** An attempt on another node, as a waiting retry sees it. `lost`: there will be no answer. */
export type SeenAttempt = {
  readonly answer: string | undefined
  readonly lost: boolean
  readonly hold: { readonly model: string; readonly createdAt: Date; readonly held: Usdc } | undefined
}

/** Looks for the answer of another node's attempt, and notifies that node that a retry waits for it. */
export async function awaitReplay(
  database: Database,
  { payer, keyHash }: ReplayKey,
  requestId: RequestId,
): Promise<SeenAttempt> {
  const [row] = await database.query<SeenRow>(
    `with wanted as (
       update replays set wanted_at = now()
        where partition = $1 and account_id = $2 and key_hash = $3 and request_id = $4
       returning partition, request_id, answer, node)
     select w.answer, w.node, r.model, r.created_at, r.quote,
            coalesce(w.answer = '' or r.status in ('failed', 'cancelled'), false) as lost
       from wanted w left join request_log r on r.partition = $1 and r.id = w.request_id`,
    [payer.partition, payer.accountId, keyHash, requestId],
  )
  if (row === undefined) return { answer: undefined, lost: true, hold: undefined }
  const { answer, model, created_at: createdAt, quote } = row
  return {
    answer: answer || undefined,
    lost: row.lost || !(await isAlive(database, row.node)),
    hold: quote === null ? undefined : { model: model!, createdAt: createdAt!, held: fromAtomic(quote) },
  }
}

type SeenRow = {
  readonly answer: string | null
  readonly node: string
  readonly lost: boolean
  readonly model: string | null
  readonly created_at: Date | null
  readonly quote: bigint | null
}

/** A key whose answer a retry on another node waits for. */
export type WantedReplay = Pick<ReplayKey, 'keyHash'> & {
  readonly payer: Pick<Payer, 'partition' | 'accountId'>
  readonly requestId: RequestId
}

/** A retry that has not polled for this long has disconnected. */
export const wantedMs = 3_000
const wantedMax = 100

/** The answers of this node that retries on other nodes wait for. */
export async function findWantedReplays(database: Database, node: string): Promise<readonly WantedReplay[]> {
  const rows = await database.query<{
    partition: number
    account_id: string
    key_hash: Buffer
    request_id: RequestId
  }>(
    `select partition, account_id, key_hash, request_id from replays
      where node = $1 and answer is null and wanted_at > clock_timestamp() - $2 * interval '1 millisecond'
      order by wanted_at limit ${wantedMax}`,
    [node, wantedMs],
  )
  return rows.map((row) => ({
    payer: { partition: row.partition, accountId: row.account_id },
    keyHash: row.key_hash,
    requestId: row.request_id,
  }))
}

/** Ends the claim of a request. Without an answer, the next attempt can claim the key. */
export async function closeReplay(
  database: Database,
  { payer, keyHash }: Pick<WantedReplay, 'payer' | 'keyHash'>,
  requestId: RequestId,
  answer: string | undefined,
): Promise<void> {
  await database.query('select close_replay($1, $2, $3, $4, $5)', [
    payer.partition,
    payer.accountId,
    keyHash,
    requestId,
    answer ?? '',
  ])
}

/** Refunds the attempt that this retry replaced, within the limits of `refund_attempt`. Returns the refund. */
export async function refundAttempt(
  database: Database,
  { payer, keyHash }: Pick<ReplayKey, 'payer' | 'keyHash'>,
  retryId: RequestId,
): Promise<Usdc> {
  const [row] = await database.query<{ refunded: bigint }>('select refund_attempt($1, $2, $3, $4) as refunded', [
    payer.partition,
    payer.accountId,
    keyHash,
    retryId,
  ])
  return fromAtomic(row!.refunded)
}

// SDK retries are accepted for 60 s after the end of an attempt; twice that, because a claim takes time to commit.
const reservedSeconds = 120
/** No index covers the end time of a request: recently ended requests are searched among those created within these hours. */
const attemptHoursMax = 1

/**
 * The most that retries may still get refunded: the charges of cancelled buffered attempts that a running retry replaces, that hold
 * an Idempotency-Key without an answer, or that ended so recently that an SDK retry may come.
 */
export const refundable = `
  select coalesce(sum(r.charged), 0) from requests r
   where r.status = 'cancelled' and not r.stream and r.charged > 0
     and not exists (select from adjustments a where a.partition = r.partition and a.request_id = r.id and a.kind = 'refund')
     and (r.partition, r.id) in (
       select p.partition, p.earlier_id from replays p where p.earlier_id is not null and p.answer is null
        union
       select p.partition, p.request_id from replays p where coalesce(p.answer, '') = ''
        union
       select x.partition, x.id from requests x
        where x.partition in (select distinct partition from accounts) and x.body_hash is not null
          and x.ended_at > statement_timestamp() - ${reservedSeconds} * interval '1 second'
          and x.id >= ${earliestRequestIdSql(`statement_timestamp() - ${attemptHoursMax} * interval '1 hour'`)})`

/** Deletes the stored answers of an account, or of some of its API keys. Returns how many. */
export async function deleteAnswers(
  database: Database,
  { partition, accountId }: AccountRef,
  keyIds: readonly string[] | undefined,
): Promise<number> {
  const rows = await database.query(
    `delete from replays where partition = $1 and account_id = $2 and ($3::uuid[] is null or key_id = any ($3)) and answer <> ''
     returning true`,
    [partition, accountId, keyIds ?? null],
  )
  return rows.length
}

const sdkAnswerHours = 1
const bytesMsMax = 60_000

/**
 * Deletes answers after `hours` (those of SDK retries after one hour), and the oldest of accounts that store more than `bytesMax`.
 */
export async function deleteOldReplays(database: Database, hours: number, bytesMax: number): Promise<void> {
  const now = (await readClock(database)).getTime()
  const before = (age: number) => new Date(now - age * 3_600_000)
  for (const partition of await listPartitions(database)) {
    await deleteOlder(database, partition, true, before(hours))
    await deleteOlder(database, partition, false, before(Math.min(hours, sdkAnswerHours)))
    // Reads every stored row of the partition, but not the answers themselves.
    const large = await database.transaction(
      (connection) =>
        connection.query<{ account_id: string }>(
          `select account_id from replays where partition = $1 and answer <> ''
            group by account_id having sum(octet_length(answer)) > $2`,
          [partition, bytesMax],
        ),
      { readOnly: true, statementMaxMs: bytesMsMax },
    )
    for (const { account_id } of large)
      await deleteExcessAnswers(database, { partition, accountId: account_id }, bytesMax)
  }
}

async function deleteOlder(database: Database, partition: number, isKeyed: boolean, before: Date): Promise<void> {
  await deleteInChunks(() =>
    database.query(
      // The age is compared twice: a retry may claim the key again before its row is locked.
      `delete from replays p using (
         select x.account_id, x.key_hash from replays x where x.partition = $1 and x.is_keyed = $2 and x.created_at < $3
          order by x.created_at limit ${chunkRowsMax}) old
        where p.partition = $1 and p.account_id = old.account_id and p.key_hash = old.key_hash and p.created_at < $3 returning 1`,
      [partition, isKeyed, before],
    ),
  )
}

async function deleteExcessAnswers(
  database: Database,
  { partition, accountId }: AccountRef,
  bytesMax: number,
): Promise<void> {
  await deleteInChunks(async () => {
    // Not a subquery of the delete: with stale statistics the sums would be computed once per row.
    const oldest = await database.query<{ key_hash: Buffer }>(
      `select k.key_hash from (
         select x.key_hash, sum(octet_length(x.answer)) over (order by x.created_at desc, x.key_hash) as bytes
           from replays x where x.partition = $1 and x.account_id = $2 and x.answer <> '') k
        where k.bytes > $3 limit ${chunkRowsMax}`,
      [partition, accountId, bytesMax],
    )
    return database.query(
      `delete from replays where partition = $1 and account_id = $2 and key_hash = any ($3::bytea[]) and answer <> '' returning 1`,
      [partition, accountId, oldest.map((row) => row.key_hash)],
    )
  })
}
