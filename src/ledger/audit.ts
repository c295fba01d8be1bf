import type { Database } from '../db/database.ts'
import { earliestRequestIdSql } from './request-id.ts'
import { firstUnsealedId } from './sealed-months.ts'
import { openPaymentStates } from './states.ts'

/** A ledger row that breaks an invariant. */
export type Violation = {
  /** The invariant's number in ARCHITECTURE.md. */
  readonly invariant: string
  readonly subject: string
  readonly detail: string
}

/**
 * One query per invariant; each finds the rows that break it. They restate in SQL, from the rows alone, what the ledger's functions
 * and constraints keep true. `$1` lists the accounts to check; null means all. `$2` is a request id: only requests from there on
 * are read. For `all`, that is the first one after the sealed months, whose sums stand for their requests.
 */
type Check = {
  /** For the full audit, which sums the running totals of an account again from every row. */
  readonly all: string
  /**
   * For the audit of the accounts in use: `$2` is a recent id, and earlier activity is in the running totals. Missing: the same query as
   * `all`. Null: only the full audit checks it.
   */
  readonly recent?: string | null
}

const checks: Readonly<Record<string, Check>> = {
  // I1: every deposited unit is available, held, charged and not refunded, or withdrawn.
  I1: {
    all: `
    select a.id as subject, format('deposited %s, gateway %s, credit %s, held %s, charged %s, given back %s, withdrawn %s',
                                   a.deposited, a.gateway, a.credit, a.held, a.charged, a.given_back, a.withdrawn) as detail
      from accounts a
     where ($1::uuid[] is null or a.id = any ($1))
       and a.deposited <> a.gateway + a.credit + a.held + a.charged - a.given_back + a.withdrawn`,
  },
  // I2: the money in flight of an account is the sum of its open requests.
  I2: {
    all: `
    select a.id as subject, format('held %s, open quotes %s; extended %s, open extensions %s', a.held, h.held, a.extended, h.extended) as detail
      from accounts a
      cross join lateral (select coalesce(sum(x.quote), 0) as held, coalesce(sum(x.extended), 0) as extended from holds x
                           where x.partition = a.partition and x.account_id = a.id) h
     where ($1::uuid[] is null or a.id = any ($1)) and (a.held <> h.held or a.extended <> h.extended)`,
  },
  // I3: no account spends more than it has.
  I3: {
    all: `
    select a.id as subject, format('gateway %s, credit %s, extended %s', a.gateway, a.credit, a.extended) as detail
      from accounts a
     where ($1::uuid[] is null or a.id = any ($1))
       and (a.gateway < 0 or a.held < 0 or a.extended < 0 or a.gateway + a.credit - a.extended < 0)`,
  },
  // I4: a key's spent and held amounts in its window are the sums of the requests created in that window, less refunds.
  I4: {
    all: `
    select k.id as subject, format('spent %s, charged %s; held %s, open %s', k.spent, r.spent + s.spent - j.refunded, k.held, h.held) as detail
      from api_keys k
      cross join lateral (select coalesce(sum(x.charged), 0) as spent from requests x
                           where x.partition = k.partition and x.account_id = k.account_id and x.key_id = k.id
                             and x.created_at >= k.window_start and x.id >= $2::uuid) r
      cross join lateral (select coalesce(sum(x.charged), 0) as spent from sealed_keys x
                           where x.partition = k.partition and x.account_id = k.account_id and x.key_id = k.id
                             and x.day >= (k.window_start at time zone 'UTC')::date) s
      cross join lateral (select coalesce(sum(x.amount), 0) as refunded from adjustments x
                           where x.partition = k.partition and x.account_id = k.account_id and x.key_id = k.id
                             and x.request_at >= k.window_start) j
      cross join lateral (select coalesce(sum(x.quote + x.extended), 0) as held from holds x
                           where x.partition = k.partition and x.account_id = k.account_id and x.key_id = k.id
                             and x.key_window = k.window_start) h
     where ($1::uuid[] is null or k.account_id = any ($1)) and (k.spent <> r.spent + s.spent - j.refunded or k.held <> h.held)`,
    recent: `
    select k.id as subject, format('held %s, open %s', k.held, h.held) as detail
      from api_keys k
      cross join lateral (select coalesce(sum(x.quote + x.extended), 0) as held from holds x
                           where x.partition = k.partition and x.account_id = k.account_id and x.key_id = k.id
                             and x.key_window = k.window_start) h
     where ($1::uuid[] is null or k.account_id = any ($1)) and k.held <> h.held`,
  },
  // I5: a hold adds up, a charge stays within it, a void and a refusal cost nothing, and no open request has ended.
  I5: onRequests(`
    select r.id as subject, format('%s: quote %s, extended %s, charged %s, voided %s', r.status, r.quote, r.extended, r.charged, r.voided) as detail
      from requests r
     where ($1::uuid[] is null or r.account_id = any ($1))
       and (r.quote <> r.from_credit + r.authorized or r.charged > r.quote + r.extended or (r.voided and r.charged <> 0)
            or (r.status = 'refused' and (r.quote <> 0 or r.charged <> 0 or r.entry is not null))
            or exists (select from holds h where h.partition = r.partition and h.id = r.id))`),
  // I6: a charge matches its usage at the prices it was quoted at.
  I6: onRequests(`
    select r.id as subject, format('charged %s for usage %s at prices %s', r.charged, coalesce(r.usage_source, 'unknown'), coalesce(p.version, 'unknown')) as detail
      from requests r left join prices p on p.version = r.price_version and p.model = r.model
     where ($1::uuid[] is null or r.account_id = any ($1)) and r.charged > 0 and (r.usage_source is null or p.version is null
           or r.charged > (r.prompt_tokens::numeric * p.input_per_million + r.completion_tokens::numeric * p.output_per_million + 999999)
                          / 1000000 + r.search_cost)`),
  // I7: every charged search has its line. A line that came too late to be charged is the operator's loss.
  I7: onRequests(`
    select r.id as subject, format('%s searches cost %s, their lines %s', r.search_calls, r.search_cost, t.total) as detail
      from requests r
      cross join lateral (select coalesce(sum((x.value->>'cost')::bigint), 0) as total
                            from (select y.value from jsonb_each(r.tool_calls) y
                                   where y.value->>'kind' = 'search' and y.value->>'status' = 'completed'
                                   order by y.key::int limit r.search_calls) x) t
     where ($1::uuid[] is null or r.account_id = any ($1)) and r.status <> 'refused'
       and (r.search_calls > 0 or r.search_cost > 0) and not r.voided and r.search_cost <> t.total`),
  // I8: the entries of an account are numbered from 1, each number once, without gaps. If the count of distinct numbers between
  // 1 and the last equals the count of entries, there is no gap.
  I8: {
    all: `
    select a.id as subject, format('%s entries, %s numbers from %s to %s, %s of them sealed', a.entries, e.numbers + coalesce(s.numbers, 0),
                                   least(e.first, s.first), greatest(e.last, s.last), coalesce(s.numbers, 0)) as detail
      from accounts a
      left join lateral (select y.requests, y.entries, lower(y.entries) as first, upper(y.entries) - 1 as last,
                                (select sum(upper(z) - lower(z)) from unnest(y.entries) as z) as numbers
                           from (select sum(x.requests) as requests, range_agg(x.entries) as entries from sealed_accounts x
                                  where x.partition = a.partition and x.account_id = a.id) y) s on s.entries is not null
      cross join lateral (select count(*) as count, count(distinct x.entry) as numbers, min(x.entry) as first, max(x.entry) as last,
                                 count(*) filter (where s.entries @> x.entry) as sealed
                            from (select r.entry from requests r
                                   where r.partition = a.partition and r.account_id = a.id and r.entry is not null and r.id >= $2::uuid
                                  union all
                                  select j.entry from adjustments j where j.partition = a.partition and j.account_id = a.id) x) e
     where ($1::uuid[] is null or a.id = any ($1))
       and (a.entries <> e.count + coalesce(s.requests, 0) or e.count <> e.numbers or s.requests <> s.numbers or e.sealed > 0
            or least(e.first, s.first) < 1 or greatest(e.last, s.last) > a.entries)`,
    recent: null,
  },
  // I9: payments cover the entries from the first on, one range after another, and each is worth the sum of its entries.
  I9: {
    all: `
    select p.account_id as subject, format('payment %s of entries %s to %s is worth %s, its entries %s; the one before ends with %s', p.number,
                                           p.first_entry, p.last_entry, p.value, r.total + s.total - j.total, p.before) as detail
      from (select x.*, lag(x.last_entry, 1, 0) over (partition by x.partition, x.account_id order by x.number) as before
              from payments x where x.state <> 'failed' and ($1::uuid[] is null or x.account_id = any ($1))) p
      cross join lateral (select coalesce(sum(x.charged), 0) as total, coalesce(sum(x.requests), 0) as requests from sealed_payments x
                           where x.partition = p.partition and x.account_id = p.account_id and x.number = p.number) s
      cross join lateral (select coalesce(sum(x.charged), 0) as total from requests x
                           where s.requests <= p.last_entry - p.first_entry and x.partition = p.partition and x.account_id = p.account_id
                             and x.entry between p.first_entry and p.last_entry and x.id >= $2::uuid) r
      cross join lateral (select coalesce(sum(x.amount), 0) as total from adjustments x
                           where x.partition = p.partition and x.account_id = p.account_id
                             and x.entry between p.first_entry and p.last_entry) j
     where p.first_entry <> p.before + 1 or p.value <> r.total + s.total - j.total`,
    recent: null,
  },
  // I10: an account's paid and covered totals are the sums of its payments, and an uncovered charge is due. A wallet account pays in
  // advance: its totals are the sums of its x402 payments less refunds, and the payments over its entries move nothing.
  I10: {
    all: `
    select a.id as subject, format('paid %s of %s, covered %s of %s up to entry %s of %s, charged %s, given back %s, unpaid since %s',
                                   a.paid, p.paid, a.covered, p.covered, a.covered_entry, p.last, a.charged, a.given_back,
                                   coalesce(a.unpaid_since::text, 'never')) as detail
      from accounts a
      cross join lateral (select coalesce(sum(x.value) filter (where x.state = 'completed' and a.wallet is null), 0) as paid,
                                 coalesce(sum(x.value) filter (where a.wallet is null), 0) as covered, coalesce(max(x.last_entry), 0) as last
                            from payments x where x.partition = a.partition and x.account_id = a.id and x.state <> 'failed') p
      cross join lateral (select coalesce(sum(v.amount) filter (where x.state = 'confirmed'), 0) as paid, coalesce(sum(v.amount), 0) as covered
                            from transfers x
                           cross join lateral (select case x.kind when 'refund' then -x.amount else x.amount end as amount) v
                           where x.partition = a.partition and x.account_id = a.id and x.state <> 'failed'
                             and (x.kind = 'refund' or x.kind = 'x402' and x.gateway_id is not null)) w
     where ($1::uuid[] is null or a.id = any ($1))
       and (a.paid <> p.paid + w.paid or a.covered <> p.covered + w.covered or a.covered_entry <> p.last
            or (a.wallet is null and w.covered <> 0)
            or (a.charged - a.given_back > a.covered and a.unpaid_since is null and a.wallet is null))`,
    recent: `
    select a.id as subject, format('covered %s, paid %s, under way %s, charged %s, given back %s', a.covered, a.paid, p.value, a.charged,
                                   a.given_back) as detail
      from accounts a
      cross join lateral (select coalesce(sum(x.value), 0) as value from payments x
                           where x.partition = a.partition and x.account_id = a.id and x.state in ${openPaymentStates}) p
     where ($1::uuid[] is null or a.id = any ($1)) and a.wallet is null
       and (a.covered <> a.paid + p.value or (a.charged - a.given_back > a.covered and a.unpaid_since is null))`,
  },
  // I11: the running totals are the sums of their rows.
  I11: {
    all: `
    select a.id as subject, format('deposited %s of %s, charged %s of %s, given back %s of %s, withdrawn %s of %s, %s of %s transfers', a.deposited, d.total,
                                   a.charged, r.charged + s.charged + j.recovered, a.given_back, j.given, a.withdrawn, w.total,
                                   a.transfers, w.count) as detail
      from accounts a
      cross join lateral (select coalesce(sum(x.amount), 0) as total from deposits x
                           where x.partition = a.partition and x.account_id = a.id) d
      cross join lateral (select coalesce(sum(x.charged), 0) as charged from requests x
                           where x.partition = a.partition and x.account_id = a.id and x.id >= $2::uuid) r
      cross join lateral (select coalesce(sum(x.charged), 0) as charged from sealed_accounts x
                           where x.partition = a.partition and x.account_id = a.id) s
      cross join lateral (select coalesce(sum(x.amount) filter (where x.kind <> 'recovery'), 0) as given,
                                 coalesce(-sum(x.amount) filter (where x.kind = 'recovery'), 0) as recovered
                            from adjustments x where x.partition = a.partition and x.account_id = a.id) j
      -- The part of the fee that the gateway did not keep was returned.
      cross join lateral (select coalesce(sum(x.amount - coalesce(x.fee_max - x.fee, 0)) filter (where x.kind <> 'x402' and x.state <> 'failed'), 0) as total,
                                 count(*) filter (where x.kind = 'refund' and x.state <> 'failed' or x.kind = 'x402' and x.gateway_id is not null) as count,
                                 coalesce(sum(v.amount) filter (where x.kind = 'x402' and x.state = 'failed' and x.gateway_id is not null), 0) as lost
                            from transfers x left join deposits v on v.partition = a.partition and v.id = x.id
                           where x.partition = a.partition and x.account_id = a.id) w
     where ($1::uuid[] is null or a.id = any ($1))
       and (a.deposited <> d.total or a.charged <> r.charged + s.charged + j.recovered or a.given_back <> j.given or a.withdrawn <> w.total
            or a.transfers <> w.count or a.lost <> w.lost)`,
    recent: null,
  },
  // I13: a snapshot of the liabilities adds up to what the ledger's running totals said at that time. The leaves of the latest are read.
  I13: {
    all: `
    select s.number::text as subject, format('sum %s, leaves %s; parts %s; accounts %s, amounts %s; running totals %s', s.sum, s.leaves, p.sum,
                                             p.leaves, p.amounts, s.booked) as detail
      from liability_snapshots s
      left join lateral (select sum(x.sum) as sum, sum(cardinality(x.accounts)) as leaves,
                                sum((select sum(y) from unnest(x.amounts) y)) as amounts
                           from liability_leaves x where x.number = s.number
                            and x.number = (select max(z.number) from liability_snapshots z)) p on p.sum is not null
     where $1::uuid[] is null and (s.sum <> s.booked or (s.sum, s.leaves) <> (p.amounts, p.leaves) or s.sum <> p.sum)`,
    recent: null,
  },
}

/** A check of single requests: the continuous audit reads only the latest, the full one all that are not sealed. */
function onRequests(text: string): Check {
  return { all: `${text} and r.id >= $2::uuid` }
}

export const invariants = Object.keys(checks)

const rowsMax = 100
const auditMsMax = 600_000

/** All violations, at most a hundred per invariant, from one snapshot; of these accounts, or of all. */
export async function findViolations(
  database: Database,
  accountIds?: readonly string[],
): Promise<readonly Violation[]> {
  return run(database, { accountIds: accountIds ?? null, firstId: firstUnsealedId, textOf: ({ all }) => all })
}

/** The same for active accounts. The cost does not grow with their history: see `Check`. */
export async function findRecentViolations(
  database: Database,
  accountIds: readonly string[],
  seconds: number,
): Promise<readonly Violation[]> {
  const firstRecent = earliestRequestIdSql(`clock_timestamp() - ${Math.ceil(seconds)} * interval '1 second'`)
  const firstId = `greatest(${firstUnsealedId}, ${firstRecent})`
  return run(database, { accountIds, firstId, textOf: ({ all, recent }) => (recent === undefined ? all : recent) })
}

type AuditRun = {
  readonly accountIds: readonly string[] | null
  /** The SQL of `$2`. */
  readonly firstId: string
  /** Null skips the check. */
  readonly textOf: (check: Check) => string | null
}

async function run(database: Database, { accountIds, firstId, textOf }: AuditRun): Promise<readonly Violation[]> {
  return database.transaction(
    async (connection) => {
      const found: Violation[] = []
      // Read in the snapshot of the checks, so that a month that is being sealed is counted once.
      const [first] = await connection.query<{ id: string }>(`select ${firstId} as id`)
      for (const [invariant, check] of Object.entries(checks)) {
        const text = textOf(check)
        if (text === null) continue
        const rows = await connection.query<{ subject: string; detail: string }>(
          `${text} limit ${rowsMax}`,
          text.includes('$2') ? [accountIds, first!.id] : [accountIds],
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
      union select h.account_id from holds h order by account_id`,
    [seconds],
  )
  return rows.map((row) => row.account_id)
}

/** The sum of all accounts' differences from I1, in atomic USDC. */
export async function sumImbalance(database: Database): Promise<bigint> {
  const [row] = await database.query<{ total: bigint }>(
    `select coalesce(sum(abs(deposited - gateway - credit - held - charged + given_back - withdrawn)), 0)::bigint as total from accounts`,
  )
  return row!.total
}
