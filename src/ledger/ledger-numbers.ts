import type { Database } from '../db/database.ts'
import type { DueRules } from './payments.ts'
import { openPaymentStates, openTransferStates, uncreditedSweepStates } from './states.ts'

/** The state of the ledger, settlement and the gateway, as metrics for the operator. Ages are seconds, amounts atomic. */
export type LedgerNumbers = {
  readonly openRequests: number
  readonly heldAtomic: number
  readonly oldestHoldSeconds: number
  readonly payments: readonly { readonly state: string; readonly count: number; readonly atomic: number }[]
  readonly oldestPaymentSeconds: number
  /** The oldest charge without a payment, and the sum of all of them. */
  readonly oldestUnpaidSeconds: number
  readonly unpaidAtomic: number
  /**
   * How long the oldest charge without a payment has waited, as a multiple of its due time. Accounts with a payment under way are
   * left out: the next one waits for it. Undefined until a settlement process has stored the due rules.
   */
  readonly unpaidDueRatio: number | undefined
  readonly failedPayments: number
  readonly arrivalsWaiting: number
  readonly sweepsOpen: number
  readonly oldestSweepSeconds: number
  /** Includes payouts of the seller's revenue: both take the same path and get stuck for the same reasons. */
  readonly withdrawalsOpen: number
  readonly oldestWithdrawalSeconds: number
  /** Only the cursors of chain readers. Other values in the table, such as the epoch, do not advance and have no age. */
  readonly cursors: readonly { readonly name: string; readonly seconds: number; readonly block: number }[]
  /** Metrics of processes without an HTTP port: see `writeGauge`. */
  readonly processMetrics: readonly { readonly name: string; readonly value: number }[]
  readonly frozen: boolean
  readonly nodesAlive: number
  /** Undefined before the first comparison with the chain. */
  readonly solvent: boolean | undefined
  readonly solvencySeconds: number | undefined
  /** Longest wait of an event for its first attempt, after the pause that its endpoint has because of failures. */
  readonly webhookWaitSeconds: number
  /** Age of the oldest event that was not yet sent once, whatever the reason. */
  readonly oldestWebhookEventSeconds: number
  /** Disabled because they failed, not by their owner. */
  readonly webhooksDisabled: number
  /** Atomic USDC. */
  readonly sellerShort: number | undefined
}

// Counting stops here: a higher number says no more, and reading it must not load the database.
const rowsMax = 100_000
const statementMaxMs = 2_000

type Optional = 'solvent' | 'solvencySeconds' | 'sellerShort' | 'unpaidDueRatio'
type Webhooks = Pick<LedgerNumbers, 'webhookWaitSeconds' | 'oldestWebhookEventSeconds' | 'webhooksDisabled'>
type Totals = Omit<LedgerNumbers, 'payments' | 'cursors' | 'processMetrics' | Optional | keyof Webhooks> & {
  readonly solvent: boolean | null
  readonly solvencySeconds: number | null
  readonly sellerShort: number | null
  readonly unpaidDueRatio: number | null
}

/** Reads one snapshot, over indexes that hold only open rows. Throws on a timeout. */
export async function readLedgerNumbers(database: Database): Promise<LedgerNumbers> {
  return database.transaction(
    async (connection) => {
      const [totals] = await connection.query<Totals>(totalsQuery)
      const [webhooks] = await connection.query<Webhooks>(webhooksQuery)
      return {
        ...totals!,
        ...webhooks!,
        solvent: totals!.solvent ?? undefined,
        solvencySeconds: totals!.solvencySeconds ?? undefined,
        sellerShort: totals!.sellerShort ?? undefined,
        unpaidDueRatio: totals!.unpaidDueRatio ?? undefined,
        payments: await connection.query<LedgerNumbers['payments'][number]>(paymentsQuery),
        cursors: await connection.query<LedgerNumbers['cursors'][number]>(
          `select name, block::float8 as block, ${age('changed_at')} as seconds from chain_cursors
            where name in ('arrivals', 'deposits') order by name`,
        ),
        processMetrics: await connection.query<LedgerNumbers['processMetrics'][number]>(
          'select name, value from process_metrics order by name limit 100',
        ),
      }
    },
    { isolation: 'repeatable read', readOnly: true, statementMaxMs },
  )
}

/** Publishes a metric of a process that has no HTTP port, through the database. */
export async function writeGauge(database: Database, name: string, value: number): Promise<void> {
  await database.query(
    `insert into process_metrics (name, value) values ($1, $2)
     on conflict (name) do update set value = excluded.value, changed_at = now()`,
    [name, value],
  )
}

/** Publishes how many chain nodes `CHAIN_RPC_URL` names, and how many of them failed when they were last asked. */
export async function writeNodeHealth(
  database: Database,
  nodes: readonly { readonly failure?: unknown }[],
): Promise<void> {
  await writeGauge(database, 'chain_nodes', nodes.length)
  await writeGauge(database, 'chain_nodes_failing', nodes.filter(({ failure }) => failure !== undefined).length)
}

/** Publishes the lifetime totals of deposits. Reads whole tables: call it occasionally in one process, not for every scrape. */
export async function writeDepositMetrics(database: Database): Promise<void> {
  const [row] = await database.query<{ seen: number; credited: number; atomic: number }>(
    `select s.seen, d.credited, d.atomic
       from (select count(*)::float8 as seen from arrivals) s
      cross join (select count(*)::float8 as credited, coalesce(sum(amount), 0)::float8 as atomic from deposits) d`,
  )
  await writeGauge(database, 'deposits_seen', row!.seen)
  await writeGauge(database, 'deposits_credited', row!.credited)
  await writeGauge(database, 'deposited_micro_usdc', row!.atomic)
}

/** Stores when payments are due, so that every web process can detect late ones. */
export async function storeDueRules(database: Database, { afterMs, min, latestMs }: DueRules): Promise<void> {
  const rules = [afterMs, latestMs, min]
  // Read first, as in setUnsettledCap.
  const different = await database.query(
    `select from ledger_state
      where (settle_after_ms, settle_latest_ms, settle_min) is distinct from ($1::bigint, $2::bigint, $3::bigint)`,
    rules,
  )
  if (different.length > 0)
    await database.query('update ledger_state set settle_after_ms = $1, settle_latest_ms = $2, settle_min = $3', rules)
}

/**
 * Publishes the lifetime totals of payments, of the entries they cover, and of the gas they took where it is known. As expensive as
 * `writeDepositMetrics`.
 */
export async function writePaymentMetrics(database: Database, gas: bigint | undefined): Promise<void> {
  const [row] = await database.query<{ made: number; entries: number }>(
    `select coalesce(sum(payments), 0)::float8 as made, coalesce(sum(covered_entry), 0)::float8 as entries from accounts`,
  )
  await writeCounter(database, 'payments_made', row!.made)
  await writeCounter(database, 'entries_paid', row!.entries)
  if (gas !== undefined) await writeCounter(database, 'payment_gas', Number(gas))
}

/** Never decreases: the entries of a failed payment are covered again later. */
async function writeCounter(database: Database, name: string, value: number): Promise<void> {
  await database.query(
    `insert into process_metrics as t (name, value) values ($1, $2)
     on conflict (name) do update set value = greatest(t.value, excluded.value), changed_at = now()`,
    [name, value],
  )
}

function age(instant: string): string {
  return `greatest(0, extract(epoch from clock_timestamp() - ${instant}))::float8`
}

const paymentsQuery = `
  select state, count(*)::int as count, coalesce(sum(abs(value)), 0)::float8 as atomic
    from (select state, value from payments where state in ${openPaymentStates} limit ${rowsMax}) s group by state order by state`

const webhooksQuery = `
  select coalesce(max(${age('greatest(w.due_at, w.created_at)')}), 0) as "webhookWaitSeconds",
         coalesce(max(${age('w.created_at')}), 0) as "oldestWebhookEventSeconds",
         (select count(*)::int from (select 1 from webhook_endpoints where disabled_reason <> 'by_owner' limit ${rowsMax}) x) as "webhooksDisabled"
    from (select e.due_at, v.created_at
            from webhook_endpoints e join accounts a on a.partition = e.partition and a.id = e.account_id
           cross join lateral (select x.created_at from events x
                                where x.partition = e.partition and x.account_id = e.account_id and x.number > e.sent_to
                                  and x.type = any (e.types) order by x.number limit 1) v
           where e.disabled_at is null and e.due_at is not null and a.events > e.sent_to limit ${rowsMax}) w`

const totalsQuery = `
  select r.count as "openRequests", r.held as "heldAtomic", coalesce(${age('r.oldest')}, 0) as "oldestHoldSeconds",
         coalesce(${age('p.oldest')}, 0) as "oldestPaymentSeconds",
         coalesce(${age('c.oldest')}, 0) as "oldestUnpaidSeconds", c.atomic as "unpaidAtomic",
         d.ratio as "unpaidDueRatio", f.count as "failedPayments",
         u.count as "arrivalsWaiting",
         s.count as "sweepsOpen", coalesce(${age('s.oldest')}, 0) as "oldestSweepSeconds",
         w.count as "withdrawalsOpen", coalesce(${age('w.oldest')}, 0) as "oldestWithdrawalSeconds",
         l.frozen_at is not null as frozen, n.count as "nodesAlive",
         o.ok or jsonb_array_length(coalesce(o.report->'short', '[0]')) = 0 as solvent,
         (o.report->>'seller_short_atomic')::float8 as "sellerShort",
         case when o.checked_at is not null then ${age('o.checked_at')} end as "solvencySeconds"
    from (select count(*)::int as count, coalesce(sum(quote + extended), 0)::float8 as held, min(created_at) as oldest
            from (select quote, extended, created_at from holds limit ${rowsMax}) x) r
   cross join (select min(created_at) as oldest from payments where state in ${openPaymentStates}) p
   cross join (select min(unpaid_since) as oldest, coalesce(sum(charged - given_back - covered), 0)::float8 as atomic
                 from (select * from accounts where unpaid_since is not null and wallet is null limit ${rowsMax}) x) c
   cross join (select max(${age('x.unpaid_since')} / greatest(1, case when x.unpaid >= t.settle_min then t.settle_after_ms else t.settle_latest_ms end / 1000.0)) as ratio
                 from ledger_state t
                 left join (select a.unpaid_since, a.charged - a.given_back - a.covered as unpaid from accounts a
                             where a.unpaid_since is not null and a.wallet is null and a.charged - a.given_back > a.covered
                               and not exists (select from payments p where p.partition = a.partition and p.account_id = a.id
                                                  and p.state in ${openPaymentStates})
                             limit ${rowsMax}) x on true
                where t.settle_latest_ms is not null) d
   cross join (select count(*)::int as count from (select 1 from payments where state = 'failed' limit ${rowsMax}) x) f
   cross join (select count(*)::int as count from (select 1 from arrivals where sweep_id is null limit ${rowsMax}) x) u
   cross join (select count(*)::int as count, min(created_at) as oldest from sweeps
                where state in ${uncreditedSweepStates}) s
   cross join (select count(*)::int as count, min(created_at) as oldest
                 from transfers where state in ${openTransferStates} and kind in ('withdrawal', 'refund', 'payout')) w
   cross join ledger_state l
   cross join (select count(*)::int as count from nodes where lease_until >= clock_timestamp()) n
    left join solvency o on true`
