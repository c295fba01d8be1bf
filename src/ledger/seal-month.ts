import { setTimeout as pause } from 'node:timers/promises'
import { readClock } from '../db/clock.ts'
import { type Connection, type Database, isLockTimeout, isStatementTimeout } from '../db/database.ts'
import { listPartitions } from './accounts.ts'
import { findViolations } from './audit.ts'
import { endOfMonth, firstDay, type Month, monthOf, startOfMonth } from './month.ts'
import { MonthChain, type MonthRow, type MonthSeal } from './month-file.ts'
import type { Payment } from './payments.ts'
import { earliestRequestId, type RequestId, timeOf } from './request-id.ts'
import { findSealedMonth, firstUnsealedId, listSealedMonths, MonthError, type SealedMonth } from './sealed-months.ts'

/** A month can be sealed after this: node clocks differ, and retries come late. */
const graceMs = 24 * 60 * 60_000
const sealMsMax = 600_000
/** Below the lock timeout of a batch of holds or ends (200 ms), so that none of them fails. */
const lockMsMax = 150
const rowsPerPage = 2_000

/**
 * Audits and seals a month. From then on the audit reads the month's sums instead of its requests. Throws a MonthError when the
 * month is not over, has open requests, or has unpaid entries; the service then pays them, and the caller tries again.
 *
 * `readLeaves` returns the hashes of a payment's entries: payments that also have entries outside of the month keep them.
 */
export async function sealMonth(
  database: Database,
  month: Month,
  readLeaves: (payment: PaymentKey) => Promise<Buffer>,
): Promise<SealedMonth> {
  const sealed = await findSealedMonth(database, month)
  if (sealed !== undefined) return sealed
  const range = { month, first: earliestRequestId(startOfMonth(month).getTime()), until: untilOf(month) }
  await checkOrder(database, range)
  await closeMonth(database, range)
  const partitions = await listPartitions(database)
  await checkPaid(database, partitions, range)
  const violations = await findViolations(database)
  if (violations.length > 0)
    throw new MonthError('An invariant of the ledger fails. Run penny audit. Nothing was sealed.')
  const chain = new MonthChain(month)
  for await (const rows of readMonthRows(database, month)) for (const row of rows) chain.add(row)
  await database.transaction(
    async (connection) => {
      await keepSeal(connection, chain.seal)
      const sums: KeptSums[] = []
      for (const partition of partitions) {
        await keepSums(connection, partition, range)
        sums.push(await readKeptSums(connection, partition, month))
        await keepLeaves(connection, { partition, month }, readLeaves)
      }
      compareSums(chain.seal, sums)
    },
    { statementMaxMs: sealMsMax },
  )
  return (await findSealedMonth(database, month))!
}

export type PaymentKey = Pick<Payment, 'partition' | 'accountId' | 'number'>

type MonthRange = { readonly month: Month; readonly first: RequestId; readonly until: RequestId }

function untilOf(month: Month): RequestId {
  return earliestRequestId(endOfMonth(month).getTime())
}

async function checkOrder(database: Database, { month, first }: MonthRange): Promise<void> {
  const clock = await readClock(database)
  const closesMs = endOfMonth(month).getTime() + graceMs
  if (clock.getTime() < closesMs) {
    const day = new Date(closesMs).toISOString().slice(0, 16).replace('T', ' ')
    throw new MonthError(`${month} is not over. It can be sealed from ${day} UTC on.`)
  }
  const newest = (await listSealedMonths(database)).at(-1)
  if (newest !== undefined && newest.month > month) {
    throw new MonthError(`${newest.month} is already sealed, and months are sealed in order. ${month} had no requests.`)
  }
  for (const partition of await listPartitions(database)) {
    const [older] = await database.query<{ id: RequestId }>(
      `select r.id from requests r
        where r.partition = $1 and r.id >= ${firstUnsealedId} and r.id < $2 and r.entry is not null order by r.id limit 1`,
      [partition, first],
    )
    if (older !== undefined) {
      throw new MonthError(`${monthOf(new Date(timeOf(older.id)))} has requests and is not sealed. Seal it first.`)
    }
  }
}

/**
 * From here on no request of the month is accepted. While this checks for open ones, briefly no request can begin at all. Retries are
 * searched for without that lock: stored answers are many, and a retry gets an id of its own.
 */
async function closeMonth(database: Database, { month, until }: MonthRange): Promise<void> {
  await retryLocked(
    () =>
      database.transaction(async (connection) => {
        await connection.execute(`set local lock_timeout = ${lockMsMax}`)
        // Placing a hold locks accounts first and then reads closed_before.
        await connection.execute(`lock table accounts in exclusive mode; set local statement_timeout = ${lockMsMax}`)
        const open = await connection.query<{ id: RequestId }>('select h.id from holds h where h.id < $1 limit 1000', [
          until,
        ])
        if (open.length > 0) throw new MonthError(`${month} has ${open.length} open requests. Try again later.`)
        await connection.query('update ledger_state set closed_before = greatest(closed_before, $1)', [until])
      }),
    (error) => isLockTimeout(error) || isStatementTimeout(error),
  )
  const retried = await database.transaction(
    (connection) =>
      connection.query<{ request_id: RequestId }>(
        'select p.request_id from replays p where p.request_id < $1 or p.earlier_id < $1 limit 1000',
        [until],
      ),
    { readOnly: true, statementMaxMs: sealMsMax },
  )
  if (retried.length > 0) {
    throw new MonthError(
      `${month} has ${retried.length} requests that can be retried. Retries are possible for a day (REPLAY_HOURS). Try again later.`,
    )
  }
}

/** Every entry of the month must be in a payment that is final on chain, with a signed root. The service pays the unpaid ones. */
async function checkPaid(database: Database, partitions: readonly number[], range: MonthRange): Promise<void> {
  let unpaid = 0
  for (const partition of partitions) {
    const accounts = await findUnpaid(database, partition, range)
    unpaid += accounts.length
    for (const { id, last } of accounts) {
      await database.query(
        'update accounts set pay_to = $3 where partition = $1 and id = $2 and pay_to < $3 and covered_entry < $3',
        [partition, id, last],
      )
    }
  }
  if (unpaid === 0) return
  throw new MonthError(
    `${unpaid} accounts have requests of ${range.month} that are not paid on chain. The running service pays them now. Try again in a few minutes.`,
  )
}

/** Accounts with entries of the month that no final payment covers, and the last such entry. */
async function findUnpaid(database: Database, partition: number, { first, until }: MonthRange) {
  return database.transaction(
    (connection) =>
      connection.query<{ id: string; last: bigint }>(
        `select a.id, e.last
           from (select r.account_id, max(r.entry) as last from requests r
                  where r.partition = $1 and r.id >= $2 and r.id < $3 and r.entry is not null group by 1) e
           join accounts a on a.partition = $1 and a.id = e.account_id
          where (a.covered_entry < e.last
                 or exists (select from payments p where p.partition = $1 and p.account_id = a.id and p.first_entry <= e.last
                               and p.state <> 'failed' and (p.state <> 'completed' or p.root is null)))`,
        [partition, first, until],
      ),
    { readOnly: true, statementMaxMs: sealMsMax },
  )
}

/** The requests of a month in archive form, ordered by partition and id, page by page. */
export async function* readMonthRows(database: Database, month: Month): AsyncGenerator<readonly MonthRow[]> {
  const until = untilOf(month)
  for (const partition of await listPartitions(database)) {
    let from: string = earliestRequestId(startOfMonth(month).getTime())
    let comparison = '>='
    for (;;) {
      const rows = await database.query<MonthRow & { readonly id: string }>(
        `select x.id, x.charged, json_strip_nulls(row_to_json(x))::text as text from (
           select ${archivedColumns} from requests r
            where r.partition = $1 and r.id ${comparison} $2 and r.id < $3 and r.entry is not null order by r.id limit ${rowsPerPage}) x`,
        [partition, from, until],
      )
      if (rows.length > 0) yield rows
      if (rows.length < rowsPerPage) break
      from = rows.at(-1)!.id
      comparison = '>'
    }
  }
}

// Amounts are strings: JavaScript would round large numbers. A row's text must be deterministic.
const instant = (name: string) => `to_char(r.${name} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as ${name}`
const archivedColumns = `r.partition, r.id, r.account_id, r.key_id, r.node, r.status, r.model, r.stream, r.max_tokens, r.price_version,
  ${instant('created_at')}, ${instant('ended_at')}, r.entry::text, r.quote::text, r.from_credit::text, r.authorized::text,
  r.extended::text, r.voided, r.charged::text, r.search_cost::text, r.search_calls, r.fetch_calls, r.tool_calls, r.prompt_tokens,
  r.completion_tokens, r.reasoning_tokens, r.cached_tokens, r.usage_source, r.finish_reason, r.error_code, r.first_token_ms, r.total_ms`

async function keepSeal(connection: Connection, { month, requests, charged, root }: MonthSeal): Promise<void> {
  const rows = await connection.query(
    `insert into sealed_months (month, requests, charged, root) values ($1, $2, $3, decode($4, 'hex')) on conflict do nothing returning 1`,
    [firstDay(month), requests, charged, root],
  )
  if (rows.length === 0) throw new MonthError(`${month} was sealed by another command at the same time.`)
}

/** The sums that the audit reads instead of the requests. */
async function keepSums(connection: Connection, partition: number, { month, first, until }: MonthRange): Promise<void> {
  const values = [partition, firstDay(month), first, until]
  const ofMonth = 'r.partition = $1 and r.id >= $3 and r.id < $4 and r.entry is not null'
  await connection.query(
    `insert into sealed_accounts (partition, account_id, month, requests, charged, entries)
     select $1, r.account_id, $2, count(*), sum(r.charged), range_agg(int8range(r.entry, r.entry, '[]'))
       from requests r where ${ofMonth} group by r.account_id`,
    values,
  )
  await connection.query(
    `insert into sealed_keys (partition, account_id, key_id, day, month, charged)
     select $1, r.account_id, r.key_id, (r.created_at at time zone 'UTC')::date, $2, sum(r.charged)
       from requests r where ${ofMonth} group by r.account_id, r.key_id, (r.created_at at time zone 'UTC')::date`,
    values,
  )
  await connection.query(
    `insert into sealed_payments (partition, account_id, number, month, requests, charged)
     select $1, p.account_id, p.number, $2, t.requests, t.charged
       from sealed_accounts s
       join payments p on p.partition = $1 and p.account_id = s.account_id and p.state = 'completed'
                      and int8range(p.first_entry, p.last_entry, '[]') && s.entries
      cross join lateral (select count(*) as requests, sum(r.charged) as charged from requests r
                           where ${ofMonth} and r.account_id = p.account_id and r.entry between p.first_entry and p.last_entry) t
      where s.partition = $1 and s.month = $2`,
    values,
  )
}

type KeptSums = {
  readonly requests: bigint
  readonly accounts: bigint
  readonly keys: bigint
  readonly payments: bigint
}

async function readKeptSums(connection: Connection, partition: number, month: Month): Promise<KeptSums> {
  const [row] = await connection.query<KeptSums>(
    `select a.requests, a.charged as accounts, k.charged as keys, p.charged as payments
       from (select coalesce(sum(requests), 0)::bigint as requests, coalesce(sum(charged), 0)::bigint as charged
               from sealed_accounts where partition = $1 and month = $2) a,
            (select coalesce(sum(charged), 0)::bigint as charged from sealed_keys where partition = $1 and month = $2) k,
            (select coalesce(sum(charged), 0)::bigint as charged from sealed_payments where partition = $1 and month = $2) p`,
    [partition, firstDay(month)],
  )
  return row!
}

/** Compares the sums with the chained rows: other statements computed them later, so they must agree. */
function compareSums({ month, requests, charged }: MonthSeal, sums: readonly KeptSums[]): void {
  const total = (name: keyof KeptSums) => sums.reduce((sum, kept) => sum + kept[name], 0n)
  const isSame =
    total('requests') === BigInt(requests) &&
    total('accounts') === charged &&
    total('keys') === charged &&
    total('payments') === charged
  if (!isSame) throw new MonthError(`The requests of ${month} changed while they were sealed. Nothing was sealed.`)
}

/**
 * Payments with entries outside of the sealed months keep the hashes of all their entries: the remaining entries need them for
 * their proofs.
 */
async function keepLeaves(
  connection: Connection,
  { partition, month }: { readonly partition: number; readonly month: Month },
  readLeaves: (payment: PaymentKey) => Promise<Buffer>,
): Promise<void> {
  const payments = await connection.query<{ accountId: string; number: bigint }>(
    `select s.account_id as "accountId", s.number
       from sealed_payments s join payments p on p.partition = $1 and p.account_id = s.account_id and p.number = s.number
       join sealed_payments x on x.partition = $1 and x.account_id = s.account_id and x.number = s.number
      where s.partition = $1 and s.month = $2
      group by s.account_id, s.number, p.first_entry, p.last_entry
     having sum(x.requests) <= p.last_entry - p.first_entry and count(x.leaves) = 0`,
    [partition, firstDay(month)],
  )
  for (const { accountId, number } of payments) {
    await connection.query(
      'update sealed_payments set leaves = $4 where partition = $1 and account_id = $2 and number = $3 and month = $5',
      [partition, accountId, number, await readLeaves({ partition, accountId, number }), firstDay(month)],
    )
  }
}

/**
 * Deletes the requests of a sealed month. The caller has verified the archive file; this compares its seal. Uses one transaction.
 * If the month cannot be locked within some seconds it stays, and requests wait for at most `lockMsMax` at a time.
 */
export async function dropMonth(database: Database, seal: MonthSeal): Promise<void> {
  const { month } = seal
  await retryLocked(() =>
    database.transaction(
      async (connection) => {
        const [row] = await connection.query<{ root: Buffer; dropped_at: Date | null }>(
          'select root, dropped_at from sealed_months where month = $1 for update',
          [firstDay(month)],
        )
        if (row === undefined) throw new MonthError(`${month} is not sealed. Seal it with penny archive seal ${month}`)
        if (row.dropped_at !== null) throw new MonthError(`${month} was already dropped.`)
        if (row.root.toString('hex') !== seal.root) throw new MonthError(differs(month))
        await deleteRows(connection, month)
        await connection.query('update sealed_months set dropped_at = $2 where month = $1', [
          firstDay(month),
          await readClock(connection),
        ])
      },
      { statementMaxMs: sealMsMax },
    ),
  )
}

export function differs(month: Month): string {
  return `The file is not the sealed ${month} of this ledger: their roots differ. Export it again: penny archive export ${month} FILE`
}

async function deleteRows(connection: Connection, month: Month): Promise<void> {
  const range = [earliestRequestId(startOfMonth(month).getTime()), untilOf(month)]
  const [older] = await connection.query<{ month: Month }>(
    `select to_char(m.month, 'YYYY-MM') as month from sealed_months m where m.month < $1 and m.dropped_at is null limit 1`,
    [firstDay(month)],
  )
  if (older !== undefined) throw new MonthError(`Months are dropped in order: drop ${older.month} first.`)
  const partitions = await listPartitions(connection)
  await connection.query('delete from requests_other r where r.id >= $1 and r.id < $2', range)
  await connection.execute(
    `set local lock_timeout = ${lockMsMax}; drop table if exists requests_${month.replace('-', '_')}`,
  )
  // Uses the primary key to be fast: until the commit, no request can be read or written.
  for (const partition of partitions) {
    const [left] = await connection.query<{ id: RequestId }>(
      'select r.id from requests r where r.partition = $3 and r.id >= $1 and r.id < $2 limit 1',
      [...range, partition],
    )
    if (left !== undefined)
      throw new MonthError(`Request ${left.id} of ${month} is in an unexpected table. Nothing was dropped.`)
  }
}

const lockAttemptsMax = 30
const lockPauseMs = 500

/** Retries with short lock timeouts, so that readers and writers can run in between. */
async function retryLocked(work: () => Promise<void>, isBusy = isLockTimeout): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await work()
    } catch (error) {
      if (!isBusy(error)) throw error
      if (attempt === lockAttemptsMax) throw new MonthError(busy)
    }
    await pause(lockPauseMs)
  }
}

const busy = 'The table is in use by a long query (an audit, a download or a backup). Nothing was changed. Try again.'
