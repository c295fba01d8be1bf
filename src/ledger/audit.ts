import type { Database } from '../db/database.ts'
import { openPaymentStates } from './open-states.ts'
import { earliestRequestIdSql } from './request-id.ts'

/** A row of the ledger that breaks one of its invariants. */
export type Violation = {
  /** The invariant, by its number in ARCHITECTURE.md. */
  readonly invariant: string
  readonly subject: string
  readonly detail: string
}

/**
 * One query per invariant; each finds the rows that break it, and none when the books are right. They restate in SQL, from
 * the rows alone, what the functions of the ledger and its constraints are meant to keep true. `$1` names the accounts to
 * look at; null means all.
 *
 * `recent` is for the audit that runs all the time: `$2` is a request id, and only requests from there on are read. What an
 * account did before is in its running totals, which the full audit (`all`) adds up again from every row there is. Left
 * out, the same query serves both; null, only the full audit can tell.
 */
type Check = { readonly all: string; readonly recent?: string | null }

const checks: Readonly<Record<string, Check>> = {
  // I1: what was deposited is there, was authorized for a request that was not voided, or was withdrawn.
  I1: {
    all: `
    select a.id as subject, format('deposited %s, gateway %s, authorized %s, returned %s, withdrawn %s',
                                   a.deposited, a.gateway, a.authorized, a.returned, a.withdrawn) as detail
      from accounts a
     where ($1::uuid[] is null or a.id = any ($1))
       and a.deposited <> a.gateway + a.authorized - a.returned + a.withdrawn`,
  },
  // I2: what was authorized was charged and not given back, is held, is credit, or went back.
  I2: {
    all: `
    select a.id as subject, format('authorized %s, returned %s, charged %s, adjusted %s, held %s, credit %s',
                                   a.authorized, a.returned, a.charged, a.adjusted, a.held, a.credit) as detail
      from accounts a
     where ($1::uuid[] is null or a.id = any ($1)) 
       and a.authorized - a.returned <> a.charged - a.adjusted + a.held + a.credit`,
  },
  // I3: what an account has in flight is the sum of its open requests.
  I3: {
    all: `
    select a.id as subject, format('held %s, open quotes %s; extended %s, open extensions %s', a.held, r.held, a.extended, r.extended) as detail
      from accounts a
      cross join lateral (select coalesce(sum(quote), 0) as held, coalesce(sum(extended), 0) as extended from requests x
                           where x.partition = a.partition and x.account_id = a.id and x.status = 'held') r
     where ($1::uuid[] is null or a.id = any ($1)) and (a.held <> r.held or a.extended <> r.extended)`,
  },
  // I4: no account spends what it does not have.
  I4: {
    all: `
    select a.id as subject, format('gateway %s, credit %s, extended %s', a.gateway, a.credit, a.extended) as detail
      from accounts a
     where ($1::uuid[] is null or a.id = any ($1))
       and (a.gateway < 0 or a.held < 0 or a.extended < 0 or a.gateway + a.credit - a.extended < 0)`,
  },
  // I5: what a key has spent and holds in its window is the sum of the requests that were created in that window.
  I5: {
    all: `
    select k.id as subject, format('spent %s, charged %s; held %s, open %s', k.spent, r.spent, k.held, r.held) as detail
      from api_keys k
      cross join lateral (select coalesce(sum(x.charged), 0) as spent,
                                 coalesce(sum(x.quote + x.extended)
                                            filter (where x.status = 'held' and x.key_window = k.window_start), 0) as held
                            from requests x where x.partition = k.partition and x.account_id = k.account_id
                              -- Rows of before 0024 whose clock had stepped back were created before the window that they name.
                              and x.key_id = k.id and greatest(x.created_at, x.key_window) >= k.window_start
                              and x.status <> 'refused') r
     where ($1::uuid[] is null or k.account_id = any ($1)) and (k.spent <> r.spent or k.held <> r.held)`,
    recent: `
    select k.id as subject, format('held %s, open %s', k.held, r.held) as detail
      from api_keys k
      cross join lateral (select coalesce(sum(x.quote + x.extended), 0) as held
                            from requests x where x.partition = k.partition and x.account_id = k.account_id
                              and x.key_id = k.id and x.key_window = k.window_start and x.status = 'held') r
     where ($1::uuid[] is null or k.account_id = any ($1)) and k.held <> r.held`,
  },
  // I6: a hold is whole, a charge stays within it, a void and a refusal cost nothing.
  I6: onRequests(`
    select r.id as subject, format('quote %s, extended %s, charged %s, voided %s', r.quote, r.extended, r.charged, r.voided) as detail
      from requests r
     where ($1::uuid[] is null or r.account_id = any ($1))
       and (r.quote <> r.from_credit + r.authorized or r.charged > r.quote + r.extended or (r.voided and r.charged <> 0)
            or (r.status = 'refused' and (r.quote <> 0 or r.charged <> 0)) or (r.status = 'held') <> (r.ended_at is null))`),
  // I7: an authorization has one nonce, and no two of an account share one.
  I7: {
    all: `
    select r.account_id as subject, format('nonce %s is used %s times', r.nonce, count(*)) as detail
      from requests r where ($1::uuid[] is null or r.account_id = any ($1)) and r.nonce is not null
     group by r.partition, r.account_id, r.nonce having count(*) > 1`,
    recent: null,
  },
  // I8: a charge has the usage it was computed from, at the prices it was quoted at.
  I8: onRequests(`
    select r.id as subject, format('charged %s for usage %s at prices %s', r.charged, coalesce(r.usage_source, 'unknown'), coalesce(p.version, 'unknown')) as detail
      from requests r left join prices p on p.version = r.price_version and p.model = r.model
     where ($1::uuid[] is null or r.account_id = any ($1)) and r.charged > 0 and (r.usage_source is null or p.version is null
           or r.charged > (r.prompt_tokens::numeric * p.input_per_million + r.completion_tokens::numeric * p.output_per_million + 999999)
                          / 1000000 + r.search_cost)`),
  // I13: every search that was charged is there, line by line. A line that came too late to be charged is the operator's loss.
  I13: onRequests(`
    select r.id as subject, format('%s searches cost %s, their lines %s', r.search_calls, r.search_cost, t.total) as detail
      from requests r
      cross join lateral (select coalesce(sum(x.cost), 0) as total
                            from (select y.cost from tool_calls y
                                   where y.partition = r.partition and y.request_id = r.id and y.kind = 'search'
                                     and y.status = 'completed'
                                   order by y.number limit r.search_calls) x) t
     where ($1::uuid[] is null or r.account_id = any ($1)) and r.status in ('succeeded', 'failed', 'cancelled')
       and (r.search_calls > 0 or r.search_cost > 0) and not r.voided and r.error_code is distinct from 'superseded'
       and r.search_cost <> t.total`),
  // I14: what was authorized is under way, final on chain, or held by an open request. Charges without cover follow from it.
  I14: {
    all: `
    select a.id as subject, format('payments under way %s of %s; authorized %s, settled %s, open %s',
                                   a.unsettled, coalesce(s.total, 0), a.authorized, a.settled, o.authorized) as detail
      from accounts a
      left join (select partition, account_id, sum(value) as total from settlements
                  where state in ${openPaymentStates} group by partition, account_id) s
             on s.partition = a.partition and s.account_id = a.id
      cross join lateral (select coalesce(sum(x.authorized), 0) as authorized from requests x
                           where x.partition = a.partition and x.account_id = a.id and x.status = 'held') o
     where ($1::uuid[] is null or a.id = any ($1))
       and (a.unsettled <> coalesce(s.total, 0) or a.authorized <> a.settled + a.unsettled + o.authorized)`,
  },
  // I15: what ended owes its payment and its receipt exactly once, for what was charged.
  I15: onRequests(`
    select r.id as subject, format('charged %s, authorized %s; to be settled: charged %s, value %s',
                                   r.charged, r.authorized, coalesce(s.charged::text, 'nothing'), s.value) as detail
      from requests r
      cross join lateral (select (array_agg(x.charged order by x.revision desc))[1] as charged, sum(x.value) as value
                            from settlements x where x.partition = r.partition and x.id = r.id) s
     where ($1::uuid[] is null or r.account_id = any ($1)) and r.status in ('succeeded', 'failed', 'cancelled')
       -- What ended before there were settlements has none.
       and r.ended_at >= (select m.applied_at from migrations m where m.number = 2)
       and (s.charged is distinct from r.charged or s.value <> case when r.voided then 0 else r.authorized end)`),
  // I16: the running totals are the sums of their rows.
  I16: {
    all: `
    select a.id as subject,
           format('deposited %s of %s, authorized %s of %s, charged %s of %s, returned %s of %s, withdrawn %s of %s, adjusted %s of %s', a.deposited,
                  d.total, a.authorized, r.authorized + s.debts - s.failed, a.charged, r.charged, a.returned, w.returned,
                  a.withdrawn, w.total, a.adjusted, j.total) as detail
      from accounts a
      cross join lateral (select coalesce(sum(x.amount), 0) as total from deposits x
                           where x.partition = a.partition and x.account_id = a.id) d
      cross join lateral (select coalesce(sum(x.authorized) filter (where not x.voided), 0) as authorized,
                                 coalesce(sum(x.charged), 0) as charged
                            from requests x where x.partition = a.partition and x.account_id = a.id) r
      cross join lateral (select coalesce(sum(x.value) filter (where x.state = 'failed'), 0) as failed,
                                 coalesce(sum(x.value) filter (where y.id is not null), 0) as debts
                            from settlements x
                            left join withdrawals y on y.partition = x.partition and y.id = x.id
                           where x.partition = a.partition and x.account_id = a.id) s
      cross join lateral (select coalesce(sum(x.credit_back), 0) as returned,
                                 -- What the gateway did not take of its fee came back.
                                 coalesce(sum(x.amount - coalesce(x.fee_max - x.fee, 0)) filter (where x.state <> 'failed'), 0) as total
                            from withdrawals x where x.partition = a.partition and x.account_id = a.id) w
      cross join lateral (select coalesce(sum(x.amount), 0) as total from adjustments x
                           where x.partition = a.partition and x.account_id = a.id) j
     where ($1::uuid[] is null or a.id = any ($1))
       and (a.deposited <> d.total or a.authorized <> r.authorized + s.debts - s.failed or a.charged <> r.charged
            or a.returned <> w.returned or a.withdrawn <> w.total or a.adjusted <> j.total)`,
    recent: null,
  },
}

/** A check of requests one by one: the running audit reads only the latest. */
function onRequests(all: string): Check {
  return { all, recent: `${all} and r.id >= $2::uuid` }
}

export const invariants = Object.keys(checks)

const rowsMax = 100
const auditMsMax = 600_000

/** All violations, at most a hundred per invariant, read from one snapshot. Of these accounts, or of all. */
export async function findViolations(
  database: Database,
  accountIds?: readonly string[],
): Promise<readonly Violation[]> {
  const accounts = accountIds ?? null
  return run(database, (check) => ({ text: check.all, values: [accounts] }))
}

/** The same for accounts in use, at a cost that does not grow with their history: see `Check`. */
export async function findRecentViolations(
  database: Database,
  accountIds: readonly string[],
  seconds: number,
): Promise<readonly Violation[]> {
  const [first] = await database.query<{ id: string }>(
    `select ${earliestRequestIdSql(`clock_timestamp() - $1 * interval '1 second'`)}::text as id`,
    [seconds],
  )
  return run(database, ({ all, recent }) => {
    if (recent === null) return undefined
    const text = recent ?? all
    return { text, values: text.includes('$2') ? [accountIds, first!.id] : [accountIds] }
  })
}

type Statement = { readonly text: string; readonly values: readonly unknown[] }

async function run(
  database: Database,
  statementOf: (check: Check) => Statement | undefined,
): Promise<readonly Violation[]> {
  return database.transaction(
    async (connection) => {
      const found: Violation[] = []
      for (const [invariant, check] of Object.entries(checks)) {
        const statement = statementOf(check)
        if (statement === undefined) continue
        const rows = await connection.query<{ subject: string; detail: string }>(
          `${statement.text} limit ${rowsMax}`,
          statement.values,
        )
        found.push(...rows.map(({ subject, detail }) => ({ invariant, subject, detail })))
      }
      return found
    },
    { isolation: 'repeatable read', readOnly: true, statementMaxMs: auditMsMax },
  )
}

/** Accounts with a request that began since then or is still open, ordered by id. */
export async function findTouchedAccounts(database: Database, seconds: number): Promise<readonly string[]> {
  const rows = await database.query<{ account_id: string }>(
    `select k.account_id from api_keys k where k.last_used_at > clock_timestamp() - $1 * interval '1 second'
      union select r.account_id from requests r where r.status = 'held' order by account_id`,
    [seconds],
  )
  return rows.map((row) => row.account_id)
}

/** By how many atomic USDC the accounts miss I1 and I2, all differences added up. */
export async function sumImbalance(database: Database): Promise<bigint> {
  const [row] = await database.query<{ total: bigint }>(
    `select coalesce(sum(abs(deposited - gateway - authorized + returned - withdrawn)
                         + abs(authorized - returned - charged + adjusted - held - credit)), 0)::bigint as total from accounts`,
  )
  return row!.total
}
