import type { Database } from '../db/database.ts'
import { rowsOf } from '../db/rows.ts'
import { openPaymentStates, openTransferStates, withdrawalKinds } from '../ledger/states.ts'
import { format, fromAtomic } from '../money/usdc.ts'
import type { AlertKind, AlertLevel } from './kinds.ts'

/** One value of an account that a rule looks at, and what it means in words. Without a value there is nothing to warn about. */
export type Measure = {
  readonly kind: AlertKind
  /** The key or webhook endpoint that it is about; empty for the account. */
  readonly subject: string
  readonly value: bigint | undefined
  readonly level: AlertLevel
  readonly words: string
}

const hourMs = 3_600_000
const dayMs = 24 * hourMs
const weekMs = 7 * dayMs
/** Fewer requests say nothing about a rate of errors. */
const rateRequestsMin = 20n
/** Below this, an hour's spend is too small for a warning, whatever is usual. Atomic USDC. */
const unusualSpendMin = 100_000n
const keysPerAccountMax = 50
const wordsLengthMax = 500

/** Measures all kinds for these accounts, by the clock of the caller. */
export async function measureAccounts(
  database: Database,
  partition: number,
  accountIds: readonly string[],
  now: Date,
): Promise<ReadonlyMap<string, readonly Measure[]>> {
  const floor = (ms: number) => new Date(Math.floor(now.getTime() / ms) * ms)
  const hour = floor(hourMs)
  const week = new Date(hour.getTime() - weekMs)
  const [accounts, keys, endpoints] = await Promise.all([
    rowsOf<AccountRow>(database.query(accountsQuery, [partition, accountIds, hour, floor(dayMs), week, now])),
    rowsOf<KeyRow>(database.query(keysQuery, [partition, accountIds, now, keysPerAccountMax])),
    rowsOf<EndpointRow>(
      database.query(
        `select account_id, id, url, disabled_reason from webhook_endpoints
        where partition = $1 and account_id = any ($2::uuid[]) and disabled_at is not null and disabled_reason <> 'by_owner'`,
        [partition, accountIds],
      ),
    ),
  ])
  return new Map(
    accounts.map((account) => [
      account.id,
      [
        ...balanceMeasures(account, now),
        ...spendMeasures(account, now),
        ...transferMeasures(account),
        ...keys.filter(({ accountId }) => accountId === account.id).map(keyMeasure),
        ...endpoints.filter(({ accountId }) => accountId === account.id).map(endpointMeasure),
      ].map((measure) => ({ ...measure, words: measure.words.slice(0, wordsLengthMax).toWellFormed() })),
    ]),
  )
}

/**
 * An account that never had money is not warned that it has none, nor is a wallet that pays each request over x402: its credit may be
 * empty at any time. Only API keys need credit that lasts.
 */
function balanceMeasures(account: AccountRow, now: Date): readonly Measure[] {
  const { available, deposited, isWallet, hasKeys, week, firstHour: first } = account
  if (deposited === 0n || (isWallet && !hasKeys)) return []
  const left = format(fromAtomic(available > 0n ? available : 0n))
  // At least a day: a busy first hour is not a busy day.
  const spanMs = first === undefined ? 0n : BigInt(Math.max(dayMs, now.getTime() - first.getTime()))
  const perDay = spanMs === 0n ? 0n : (week * BigInt(dayMs)) / spanMs
  const days = perDay === 0n ? undefined : available / perDay
  return [
    {
      ...whole('balance_empty', available > 0n ? 1n : 0n, 'error'),
      words: isWallet
        ? 'The credit of this wallet is used up. Requests with API keys are refused; the wallet can pay each request over x402.'
        : 'Your balance is empty. Requests are refused until you deposit.',
    },
    // An empty balance has its own alert.
    { ...whole('balance_below', available > 0n ? available : undefined), words: `${left} USDC left.` },
    {
      ...whole('days_left', available > 0n ? days : undefined),
      words: `${left} USDC left, enough for ${days === 0n ? 'less than a day' : count(days ?? 0n, 'day')} at ${format(fromAtomic(perDay))} USDC per day.`,
    },
  ]
}

function spendMeasures(account: AccountRow, now: Date): readonly Measure[] {
  const { hour, day, before, activeHours, firstHour: first, attempts, errors } = account
  const spent = format(fromAtomic(hour))
  const usual = activeHours === 0n ? 0n : before / activeHours
  const isKnown =
    first !== undefined && now.getTime() - first.getTime() >= dayMs && usual > 0n && hour >= unusualSpendMin
  const times = isKnown ? hour / usual : undefined
  const percent = attempts < rateRequestsMin ? undefined : (errors * 100n) / attempts
  return [
    { ...whole('spend_hour', hour), words: `${spent} USDC spent in this hour.` },
    { ...whole('spend_day', day), words: `${format(fromAtomic(day))} USDC spent today (UTC).` },
    {
      ...whole('spend_unusual', times),
      words: `${spent} USDC spent in this hour, ${times ?? 0n} times the usual ${format(fromAtomic(usual))} USDC.`,
    },
    {
      ...whole('error_rate', percent),
      words: `${percent ?? 0n} % of ${attempts} requests failed or were refused in this hour and the one before.`,
    },
  ]
}

function transferMeasures({ paymentMinutes: payment, withdrawalMinutes: withdrawal }: AccountRow) {
  return [
    {
      ...whole('settlement_stuck', payment),
      words: `A payment for your requests has been on its way to the chain for ${count(payment ?? 0n, 'minute')}. Your balance is not affected.`,
    },
    {
      ...whole('withdrawal_stuck', withdrawal, 'error'),
      words: `A withdrawal has been in progress for ${count(withdrawal ?? 0n, 'minute')}.`,
    },
  ]
}

function keyMeasure({ id, name, limit, spent }: KeyRow): Measure {
  const value = (spent * 100n) / limit
  return {
    kind: 'key_limit',
    subject: id,
    value,
    level: value >= 100n ? 'error' : 'warning',
    words: `Key "${name}" has spent ${format(fromAtomic(spent))} of its ${format(fromAtomic(limit))} USDC limit (${value} %).`,
  }
}

const reasons = {
  failing: 'no delivery succeeded for three days',
  behind: 'too many events were waiting',
  gone: 'it answered 410',
}

function endpointMeasure({ id, url, disabledReason: reason }: EndpointRow): Measure {
  return {
    kind: 'webhook_disabled',
    subject: id,
    value: 1n,
    level: 'error',
    words: `The webhook endpoint ${new URL(url).host} was disabled: ${reasons[reason]}.`,
  }
}

function whole(kind: AlertKind, value: bigint | undefined, level: Measure['level'] = 'warning') {
  return { kind, subject: '', value, level }
}

function count(number: bigint, noun: string): string {
  return `${number} ${noun}${number === 1n ? '' : 's'}`
}

type AccountRow = {
  readonly id: string
  readonly available: bigint
  readonly deposited: bigint
  /** The account pays over x402. */
  readonly isWallet: boolean
  /** Wallet accounts only: whether an API key other than the wallet's own works. */
  readonly hasKeys: boolean
  readonly hour: bigint
  readonly day: bigint
  readonly week: bigint
  /** Spend of the week before this hour. */
  readonly before: bigint
  readonly activeHours: bigint
  /** The first hour with a charge in the week. */
  readonly firstHour: Date | undefined
  readonly attempts: bigint
  readonly errors: bigint
  readonly paymentMinutes: bigint | undefined
  readonly withdrawalMinutes: bigint | undefined
}

type KeyRow = {
  readonly accountId: string
  readonly id: string
  readonly name: string
  readonly limit: bigint
  readonly spent: bigint
}

type EndpointRow = {
  readonly accountId: string
  readonly id: string
  readonly url: string
  readonly disabledReason: keyof typeof reasons
}

// Errors are counted over this hour and the previous one: at the beginning of an hour there are too few requests.
const accountsQuery = `
  select a.id, a.gateway + a.credit - a.extended as available, a.deposited, a.wallet is not null as is_wallet,
         a.wallet is not null and exists (select from api_keys k where k.partition = $1 and k.account_id = a.id and k.hint <> 'x402'
           and k.revoked_at is null and (k.expires_at is null or k.expires_at > $6)) as has_keys, u.*,
         (select floor(extract(epoch from $6::timestamptz - min(p.created_at)) / 60)::bigint from payments p
           where p.partition = $1 and p.account_id = a.id and a.wallet is null and p.state in ${openPaymentStates}) as payment_minutes,
         (select floor(extract(epoch from $6::timestamptz - min(w.created_at)) / 60)::bigint from transfers w
           where w.partition = $1 and w.account_id = a.id and w.kind in ${withdrawalKinds} and w.state in ${openTransferStates}) as withdrawal_minutes
    from accounts a
   cross join lateral (
     select coalesce(sum(h.charged) filter (where h.hour >= $3), 0)::bigint as hour,
            coalesce(sum(h.charged) filter (where h.hour >= $4), 0)::bigint as day,
            coalesce(sum(h.charged), 0)::bigint as week,
            coalesce(sum(h.charged) filter (where h.hour < $3), 0)::bigint as before,
            count(distinct h.hour) filter (where h.hour < $3 and h.charged > 0) as active_hours,
            min(h.hour) filter (where h.charged > 0) as first_hour,
            coalesce(sum(h.succeeded + h.failed + h.cancelled + h.refused) filter (where h.hour >= $3 - interval '1 hour'), 0)::bigint as attempts,
            coalesce(sum(h.failed + h.refused) filter (where h.hour >= $3 - interval '1 hour'), 0)::bigint as errors
       from usage_hours h where h.partition = $1 and h.account_id = a.id and h.hour >= $5) u
   where a.partition = $1 and a.id = any ($2::uuid[])`

const keysQuery = `
  select account_id, id, name, limit_amount as "limit", spent
    from (select k.account_id, k.id, k.name, k.limit_amount, s.spent,
                 row_number() over (partition by k.account_id order by s.spent::float8 / k.limit_amount desc, k.id) as place
            from api_keys k
           cross join lateral (
             select case when k.window_start >= window_start(k.limit_window, $3) then k.spent else 0 end as spent) s
           where k.partition = $1 and k.account_id = any ($2::uuid[]) and k.limit_amount > 0 and k.revoked_at is null
             and (k.expires_at is null or k.expires_at > $3)) x
   where x.place <= $4`
