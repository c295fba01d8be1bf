import type { Database } from '../db/database.ts'
import { openPaymentStates, openWithdrawalStates, uncreditedSweepStates } from './open-states.ts'

/** What the ledger, settlement and the gateway know, as plain numbers for the operator. Ages are seconds, amounts atomic. */
export type LedgerNumbers = {
  readonly openRequests: number
  readonly heldAtomic: number
  readonly oldestHoldSeconds: number
  readonly payments: readonly { readonly state: string; readonly count: number; readonly atomic: number }[]
  readonly oldestPaymentSeconds: number
  readonly failedPayments: number
  readonly arrivalsWaiting: number
  readonly sweepsOpen: number
  readonly oldestSweepSeconds: number
  /** Payouts of the seller's revenue included: both go out in the same way, and are stuck for the same reasons. */
  readonly withdrawalsOpen: number
  readonly oldestWithdrawalSeconds: number
  /** Of those who read the chain. What else is kept beside them, as the epoch, gets no further and has no age. */
  readonly cursors: readonly { readonly name: string; readonly seconds: number; readonly block: number }[]
  /** What processes without a port of their own have told: see `tellGauge`. */
  readonly told: readonly { readonly name: string; readonly value: number }[]
  readonly frozen: boolean
  readonly nodesAlive: number
  /** Undefined before the books were first compared with the chain. */
  readonly solvent: boolean | undefined
  readonly solvencySeconds: number | undefined
  /** Atomic USDC. */
  readonly sellerShort: number | undefined
}

// Rows beyond this are not counted: a number so high says enough, and reading it must not become a load of its own.
const rowsMax = 100_000
const statementMaxMs = 2_000

type Totals = Omit<LedgerNumbers, 'payments' | 'cursors' | 'told' | 'solvent' | 'solvencySeconds' | 'sellerShort'> & {
  readonly solvent: boolean | null
  readonly solvencySeconds: number | null
  readonly sellerShort: number | null
}

/** Read from one snapshot, over indexes that hold only what is open. Throws when it takes too long. */
export async function readLedgerNumbers(database: Database): Promise<LedgerNumbers> {
  return database.transaction(
    async (connection) => {
      const [totals] = await connection.query<Totals>(totalsQuery)
      return {
        ...totals!,
        solvent: totals!.solvent ?? undefined,
        solvencySeconds: totals!.solvencySeconds ?? undefined,
        sellerShort: totals!.sellerShort ?? undefined,
        payments: await connection.query<LedgerNumbers['payments'][number]>(paymentsQuery),
        cursors: await connection.query<LedgerNumbers['cursors'][number]>(
          `select name, block::float8 as block, ${age('changed_at')} as seconds from chain_cursors
            where name in ('arrivals', 'deposits') order by name`,
        ),
        told: await connection.query<LedgerNumbers['told'][number]>(
          'select name, value from told_gauges order by name limit 100',
        ),
      }
    },
    { isolation: 'repeatable read', readOnly: true, statementMaxMs },
  )
}

/** A process that nobody can scrape tells a number through the database. */
export async function tellGauge(database: Database, name: string, value: number): Promise<void> {
  await database.query(
    `insert into told_gauges (name, value) values ($1, $2)
     on conflict (name) do update set value = excluded.value, changed_at = clock_timestamp()`,
    [name, value],
  )
}

/** What has come in since the beginning. It is read from whole tables: for one process and now and then, not for every scrape of every node. */
export async function tellDeposits(database: Database): Promise<void> {
  const [row] = await database.query<{ seen: number; credited: number; atomic: number }>(
    `select (select count(*) from arrivals)::float8 as seen, count(*)::float8 as credited,
            coalesce(sum(amount), 0)::float8 as atomic
       from deposits`,
  )
  await tellGauge(database, 'deposits_seen', row!.seen)
  await tellGauge(database, 'deposits_credited', row!.credited)
  await tellGauge(database, 'deposited_micro_usdc', row!.atomic)
}

function age(instant: string): string {
  return `greatest(0, extract(epoch from clock_timestamp() - ${instant}))::float8`
}

function open(columns: string, condition: string): string {
  return `(select ${columns} from settlements where ${condition} and state in ${openPaymentStates} limit ${rowsMax})`
}

// A payment is in one of two partial indexes: see 0002_settlement.sql.
const openPayments = `(
  ${open('state, value, ended_at', 'receipt_number is not null')}
  union all
  ${open('state, value, ended_at', 'receipt_number is null')}
)`

const paymentsQuery = `
  select state, count(*)::int as count, coalesce(sum(value), 0)::float8 as atomic
    from ${openPayments} s group by state order by state`

const totalsQuery = `
  select r.count as "openRequests", r.held as "heldAtomic", coalesce(${age('r.oldest')}, 0) as "oldestHoldSeconds",
         coalesce(${age('p.oldest')}, 0) as "oldestPaymentSeconds", f.count as "failedPayments",
         u.count as "arrivalsWaiting",
         s.count as "sweepsOpen", coalesce(${age('s.oldest')}, 0) as "oldestSweepSeconds",
         w.count as "withdrawalsOpen", coalesce(${age('w.oldest')}, 0) as "oldestWithdrawalSeconds",
         l.frozen_at is not null as frozen, n.count as "nodesAlive", 
         o.ok or jsonb_array_length(coalesce(o.report->'short', '[0]')) = 0 as solvent,
         (o.report->>'seller_short_atomic')::float8 as "sellerShort",
         case when o.checked_at is not null then ${age('o.checked_at')} end as "solvencySeconds"
    from (select count(*)::int as count, coalesce(sum(quote + extended), 0)::float8 as held, min(created_at) as oldest
            from (select quote, extended, created_at from requests where status = 'held' limit ${rowsMax}) x) r
   cross join (select min(ended_at) as oldest from ${openPayments} x) p
   cross join (select count(*)::int as count from (select from settlements where state = 'failed' limit ${rowsMax}) x) f
   cross join (select count(*)::int as count from (select from arrivals where sweep_id is null limit ${rowsMax}) x) u
   cross join (select count(*)::int as count, min(created_at) as oldest from sweeps
                where state in ${uncreditedSweepStates}) s
   cross join (select count(*)::int as count, min(created_at) as oldest
                 from (select created_at from withdrawals where state in ${openWithdrawalStates}
                       union all
                       select created_at from payouts where state in ('requested', 'sent')) x) w
   cross join ledger_state l
   cross join (select count(*)::int as count from nodes where lease_until >= clock_timestamp()) n
    left join solvency o on true`
