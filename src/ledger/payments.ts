import type { AccountRef } from '../db/account-ref.ts'
import { plainArray, rowArray } from '../db/array-literal.ts'
import { isLongerAgo, readClock } from '../db/clock.ts'
import { type Database, isLockTimeout } from '../db/database.ts'
import { rowOf, rowsOf } from '../db/rows.ts'
import type { Usdc } from '../money/usdc.ts'
import type { Hex } from '../receipts/hex.ts'
import { paymentEntriesMax } from '../receipts/payment.ts'
import { partitionOf, type RequestId } from './request-id.ts'
import { openPaymentStates, openTransferStates, type PaymentState } from './states.ts'

/** One authorization on chain for a range of an account's entries. */
export type Payment = {
  readonly partition: number
  readonly accountId: string
  /** The account's custodial address, or the wallet of a wallet account. */
  readonly address: string
  /** Wallet accounts only: paid in advance over x402. The payment signs receipts and transfers nothing. */
  readonly isPrepaid: boolean
  /** Numbers the account's payments from 1; the sequence in its nonce. */
  readonly number: bigint
  readonly epoch: number
  readonly firstEntry: bigint
  readonly lastEntry: bigint
  /** The sum of the entries. Below 0 the seller pays the account. */
  readonly value: bigint
  readonly state: PaymentState
  readonly gatewayId: string | undefined
  /** The previous payment's root; undefined for the first. */
  readonly previousRoot: Hex | undefined
  /** Undefined until it is computed, before the first submission. */
  readonly root: Hex | undefined
  readonly authorizedAt: Date
}

/** When an account's charges are paid. */
export type DueRules = {
  /** A charge is due when it is older than this and worth `min`. */
  readonly afterMs: number
  readonly min: Usdc
  /** A charge older than this is due, whatever its value. */
  readonly latestMs: number
  /** An account with half of this unsettled is due immediately. */
  readonly cap: Usdc
  /** One payment is worth no more: the signer would refuse it. */
  readonly max: Usdc
}

/** What one payment may cover. */
export type PaymentLimits = { readonly entriesMax: number; readonly valueMax: bigint }

const accountsMax = 256

/**
 * Creates the due payments, at most one open payment per account: requests that end meanwhile go into the next. So a busier account
 * shares each payment among more requests. Returns how many were created.
 */
export async function makeDuePayments(database: Database, rules: DueRules, epoch: number): Promise<number> {
  const limits = { entriesMax: paymentEntriesMax, valueMax: rules.max }
  return makePayments(database, await findDueAccounts(database, rules), epoch, limits)
}

/** An account whose unpaid entries are due. */
export type DueAccount = {
  readonly partition: number
  readonly id: string
  /** The account withdraws or is closed: create the payment even if the sum is not positive. */
  readonly isForced: boolean
}

/** Accounts with due entries and without an open payment, longest unpaid first. */
export async function findDueAccounts(
  database: Database,
  rules: DueRules,
  entriesMax: number = paymentEntriesMax,
): Promise<readonly DueAccount[]> {
  const { afterMs, min, latestMs, cap } = rules
  return database.queryPrepared<DueAccount>('find_due_accounts', findDue, [
    afterMs,
    min,
    latestMs,
    cap / 2n,
    entriesMax,
    accountsMax,
  ])
}

/** Creates the next payment of each account. Returns how many were created. */
export async function makePayments(
  database: Database,
  due: readonly DueAccount[],
  epoch: number,
  { entriesMax, valueMax }: PaymentLimits,
): Promise<number> {
  let made = 0
  for (const [partition, accounts] of Map.groupBy(due, (account) => account.partition)) {
    made += await skippingLocked(accounts, async (some) => {
      const forced = some.filter(({ isForced }) => isForced)
      const [row] = await database.queryPrepared<{ made: number }>('make_payments', makePaymentsCall, [
        partition,
        plainArray(some.map(({ id }) => id)),
        plainArray(forced.map(({ id }) => id)),
        entriesMax,
        valueMax,
        epoch,
      ])
      return row!.made
    })
  }
  return made
}

const makePaymentsCall = 'select make_payments($1, $2, $3, $4, $5, $6) as made'

/**
 * Processes all items in one call. If an account stays locked, processes them one by one and skips the locked ones: one account
 * must not block the payments of the others. Returns the sum of the calls' results.
 */
async function skippingLocked<Item>(
  items: readonly Item[],
  work: (items: readonly Item[]) => Promise<number>,
): Promise<number> {
  try {
    return await work(items)
  } catch (error) {
    if (!isLockTimeout(error)) throw error
    if (items.length === 1) return 0
    let sum = 0
    for (const item of items) sum += await skippingLocked([item], work)
    return sum
  }
}

// A failed payment is not repeated immediately: its cause may last.
const findDue = `
  with candidates as (
    select partition, id from accounts where unpaid_since is not null
     union
    select partition, id from accounts where pay_to > covered_entry
     union
    select partition, account_id from transfers where state in ${openTransferStates} and state = 'requested' and kind = 'withdrawal')
  select a.partition, a.id, coalesce(w.after_entry > a.covered_entry, false) or a.closed_at is not null or a.pay_to > a.covered_entry as "isForced"
    from candidates c
    join accounts a on a.partition = c.partition and a.id = c.id
    left join (select x.partition, x.account_id, max(x.after_entry) as after_entry from transfers x where x.state in ${openTransferStates} and x.state = 'requested' and x.kind = 'withdrawal'
                group by x.partition, x.account_id) w on w.partition = a.partition and w.account_id = a.id
   where (a.address is not null or a.wallet is not null) and a.entries > a.covered_entry
     and (w.after_entry > a.covered_entry or a.closed_at is not null or a.pay_to > a.covered_entry or a.entries - a.covered_entry >= $5
          -- Nothing is owed by a wallet, and its receipts have to be signed.
          or (a.wallet is not null and a.unpaid_since <= clock_timestamp() - $1 * interval '1 millisecond')
          or (a.charged - a.given_back - a.covered > 0
              and (a.charged - a.given_back - a.covered >= $4
                   or a.unpaid_since <= clock_timestamp() - $3 * interval '1 millisecond'
                   or (a.charged - a.given_back - a.covered >= $2
                       and a.unpaid_since <= clock_timestamp() - $1 * interval '1 millisecond'))))
     -- A restored ledger is frozen until it knows which payments were made after the backup.
     and not exists (select 1 from ledger_state l where l.frozen_at is not null)
     -- The newest payment decides: an account has at most one open payment, and it is the last.
     and not exists (select from payments p where p.partition = a.partition and p.account_id = a.id and p.number = a.payments
                        and (p.state in ${openPaymentStates}
                             or p.state = 'failed' and p.changed_at > clock_timestamp() - interval '10 seconds'))
     -- The next root is chained to this one's, and a recovered payment must get its root first.
     and not exists (select from payments p where p.partition = a.partition and p.account_id = a.id
                        and p.state = 'completed' and p.root is null)
   order by a.unpaid_since limit $6`

// Open payments are checked less often the older they are, down to once a minute. A refused one waits ten seconds.
const pauseOfPayment = `greatest(case when p.reason is null then interval '0' else interval '10 seconds' end,
                                 least((p.changed_at - p.created_at) / 4, interval '60 seconds'))`

/** Payments that the gateway is not known to have, those that waited longest first. */
export function findPaymentsToSubmit(database: Database, rowsMax: number): Promise<readonly Payment[]> {
  return rowsOf<Payment>(
    database.queryPrepared(
      'find_payments_to_submit',
      `select ${paymentColumns} from payments p join accounts a on a.partition = p.partition and a.id = p.account_id
        where p.state in ${openPaymentStates} and p.state in ('submitted', 'unknown')
          and ${isLongerAgo('p.changed_at', pauseOfPayment)}
        order by p.changed_at limit $1`,
      [rowsMax],
    ),
  )
}

export type ConfirmDue = { readonly untouchedMs: number; readonly overdueMs: number; readonly rowsMax: number }

/** A payment by the gateway's id. */
export type ToConfirm = { readonly id: string; readonly isOverdue: boolean }

/** Payments of accounts and of wallets at the gateway without news for `untouchedMs`, by its ids, longest first. */
export async function findPaymentsToConfirm(
  database: Database,
  { untouchedMs, overdueMs, rowsMax }: ConfirmDue,
): Promise<readonly ToConfirm[]> {
  return database.queryPrepared(
    'find_payments_to_confirm',
    `select p.gateway_id as id,
            ${isLongerAgo('p.changed_at', `greatest($2 * interval '1 millisecond', ${pauseOfPayment})`)} as "isOverdue"
       from (select partition, gateway_id, created_at, changed_at, reason from payments
              where state in ${openPaymentStates} and state in ('received', 'batched')
              union all
             select partition, gateway_id, created_at, changed_at, reason from transfers
              where state in ${openTransferStates} and state in ('received', 'batched') and kind = 'x402') p
      where ${isLongerAgo('p.changed_at', `greatest($1 * interval '1 millisecond', ${pauseOfPayment})`)}
      order by p.changed_at limit $3`,
    [untouchedMs, overdueMs, rowsMax],
  )
}

/** Payments that were recovered from the gateway after a restore, and whose entries have no root yet. Ordered within each account. */
export function findRecoveredPayments(database: Database, rowsMax: number): Promise<readonly Payment[]> {
  return rowsOf<Payment>(
    database.queryPrepared(
      'find_recovered_payments',
      `select ${paymentColumns} from payments p join accounts a on a.partition = p.partition and a.id = p.account_id
        where p.root is null and p.state in ('received', 'batched', 'completed') order by p.account_id, p.number limit $1`,
      [rowsMax],
    ),
  )
}

/** Chains a recovered payment to its predecessor, if there is one. */
export async function chainRecoveredPayment(database: Database, payment: Payment): Promise<Payment> {
  const { partition, accountId, number } = payment
  const row = await rowOf<Pick<Payment, 'previousRoot'>>(
    database.query(
      `update payments p
          set previous_root = (select q.root from payments q where q.partition = $1 and q.account_id = $2 and q.number < $3
                                  and q.state <> 'failed' order by q.number desc limit 1)
        where p.partition = $1 and p.account_id = $2 and p.number = $3 and p.root is null
       returning '0x' || encode(p.previous_root, 'hex') as previous_root`,
      [partition, accountId, number],
    ),
  )
  return { ...payment, ...row }
}

/** The cursor of the gateway's changes, undefined before the first; and whether the gateway has a payment that is not final. */
export async function readGatewayState(
  database: Database,
): Promise<{ readonly cursor: string | undefined; readonly isUnderWay: boolean }> {
  const [row] = await database.queryPrepared<{ cursor: string | null; isUnderWay: boolean }>(
    'read_gateway_state',
    `select (select cursor from gateway_cursor) as cursor,
            exists (select 1 from payments where state in ${openPaymentStates} and state in ('received', 'batched')
                    union all
                    select 1 from transfers where state in ${openTransferStates} and state in ('received', 'batched') and kind = 'x402') as "isUnderWay"`,
    [],
  )
  return { cursor: row!.cursor ?? undefined, isUnderWay: row!.isUnderWay }
}

export async function keepGatewayCursor(database: Database, cursor: string): Promise<void> {
  await database.queryPrepared(
    'keep_gateway_cursor',
    `insert into gateway_cursor (cursor) values ($1)
     on conflict (single) do update set cursor = excluded.cursor, changed_at = now()`,
    [cursor],
  )
}

/** Finds payments by the gateway's ids. */
export function findPaymentsByGatewayId(
  database: Database,
  gatewayIds: readonly string[],
): Promise<readonly Payment[]> {
  return rowsOf<Payment>(
    database.queryPrepared(
      'find_payments_by_gateway_id',
      `select ${paymentColumns} from payments p join accounts a on a.partition = p.partition and a.id = p.account_id
        where p.gateway_id = any ($1)`,
      [gatewayIds],
    ),
  )
}

/** Marks payments as checked without news, so that others are checked first. */
export async function touchPayments(database: Database, payments: readonly Payment[]): Promise<void> {
  for (const [partition, group] of Map.groupBy(payments, (payment) => payment.partition)) {
    await database.query(
      `update payments p set changed_at = $5
         from unnest($2::uuid[], $3::bigint[], $4::text[]) as u (account_id, number, state)
        where p.partition = $1 and p.account_id = u.account_id and p.number = u.number and p.state = u.state`,
      [
        partition,
        plainArray(group.map(({ accountId }) => accountId)),
        plainArray(group.map(({ number }) => number)),
        plainArray(group.map(({ state }) => state)),
        await readClock(database),
      ],
    )
  }
}

/** Stores the root and the issuer's signature of a payment before it is submitted. Both are deterministic. */
export async function keepRoots(
  database: Database,
  signed: readonly { readonly payment: Payment; readonly root: Hex; readonly signature: Hex }[],
): Promise<void> {
  for (const [partition, group] of Map.groupBy(signed, ({ payment }) => payment.partition)) {
    await database.queryPrepared(
      'keep_roots',
      `update payments p set root = decode(substr(u.root, 3), 'hex'), signature = decode(substr(u.signature, 3), 'hex')
         from unnest($2::uuid[], $3::bigint[], $4::text[], $5::text[]) as u (account_id, number, root, signature)
        where p.partition = $1 and p.account_id = u.account_id and p.number = u.number and p.root is null`,
      [
        partition,
        plainArray(group.map(({ payment }) => payment.accountId)),
        plainArray(group.map(({ payment }) => payment.number)),
        plainArray(group.map(({ root }) => root)),
        plainArray(group.map(({ signature }) => signature)),
      ],
    )
  }
}

/** A payment's new state, as the gateway reports it. */
export type PaymentNews = {
  readonly payment: Pick<Payment, 'partition' | 'accountId' | 'number'>
  readonly state: PaymentState
  readonly reason?: string | undefined
  readonly gatewayId?: string | undefined
  readonly batch?: bigint | undefined
  readonly transactionHash?: string | undefined
  readonly batchRoot?: string | undefined
  readonly batchProof?: readonly string[] | undefined
  /** The position among the payments of its batch, from 1. */
  readonly place?: { readonly position: number; readonly size: number } | undefined
}

/**
 * Stores news of payments, in one call per partition. Final states do not change. Skips accounts that stay locked: ask again.
 * Returns how many changed.
 */
export async function advancePayments(database: Database, news: readonly PaymentNews[]): Promise<number> {
  let changed = 0
  for (const [partition, group] of Map.groupBy(news, ({ payment }) => payment.partition)) {
    changed += await skippingLocked(group, (some) => advanceAll(database, partition, some))
  }
  return changed
}

const advancePaymentsCall = 'select account_id, number from advance_payments($1, $2, $3)'

async function advanceAll(database: Database, partition: number, news: readonly PaymentNews[]): Promise<number> {
  const rows = await database.queryPrepared('advance_payments', advancePaymentsCall, [
    partition,
    plainArray([...new Set(news.map(({ payment }) => payment.accountId))]),
    rowArray(
      news.map(({ payment, place, batchProof, ...item }) => [
        payment.accountId,
        payment.number,
        item.state,
        item.reason,
        item.gatewayId,
        item.batch,
        place?.position,
        place?.size,
        bytesOf(item.batchRoot),
        batchProof && Buffer.from(batchProof.map((hash) => hash.slice(2)).join(''), 'hex'),
        bytesOf(item.transactionHash),
      ]),
    ),
  ])
  return rows.length
}

/**
 * Renews the validity window of a payment that was never submitted and is about to expire, under the same nonce. Returns the
 * window's start: the signed payment must match the row, so that it can be signed again.
 */
export async function renewWindow(
  database: Database,
  { partition, accountId, number, authorizedAt }: Payment,
): Promise<Date> {
  const [row] = await database.query<{ authorized_at: Date }>(
    `update payments set authorized_at = $4, changed_at = $4
      where partition = $1 and account_id = $2 and number = $3 and state in ('submitted', 'unknown') returning authorized_at`,
    [partition, accountId, number, await readClock(database)],
  )
  return row?.authorized_at ?? authorizedAt
}

/** Totals of payments by state; charges without a payment are `unpaid`. */
export type PaymentTotals = {
  readonly state: PaymentState | 'unpaid'
  readonly count: number
  readonly value: Usdc
  readonly oldest: Date | undefined
}

export function summarizePayments(database: Database): Promise<readonly PaymentTotals[]> {
  return rowsOf<PaymentTotals>(
    database.query(
      `select state, count(*)::int as count, coalesce(sum(value), 0)::bigint as value, min(created_at) as oldest
         from payments group by state
        union all
       select 'unpaid', count(*)::int, coalesce(sum(charged - given_back - covered), 0)::bigint, min(unpaid_since)
         from accounts where charged - given_back <> covered and wallet is null having count(*) > 0
        order by state`,
    ),
  )
}

/** An entry of an account with an address. */
export type EntryPlace = AccountRef & { readonly address: string; readonly entry: bigint }

/** A request's entry number. Undefined while it is open, and for a refused one. */
export function findEntryOfRequest(database: Database, id: RequestId): Promise<EntryPlace | undefined> {
  return rowOf<EntryPlace>(
    database.query(
      `select r.partition, r.account_id, coalesce(a.address, a.wallet) as address, r.entry
         from requests r join accounts a on a.partition = $1 and a.id = r.account_id
        where r.partition = $1 and r.id = $2 and r.entry is not null and coalesce(a.address, a.wallet) is not null`,
      [partitionOf(id), id],
    ),
  )
}

type LastEntry = { readonly entries: bigint; readonly address: string | undefined }

/** The account's number of entries, and its paying address: its own, or the wallet of a wallet account. */
export async function readLastEntry(database: Database, { partition, accountId }: AccountRef): Promise<LastEntry> {
  const row = await rowOf<LastEntry>(
    database.query(
      'select entries, coalesce(address, wallet) as address from accounts where partition = $1 and id = $2',
      [partition, accountId],
    ),
  )
  return row!
}

/** A payment with its proof. */
export type ProvenPayment = {
  readonly payment: Payment
  readonly signature: Hex | undefined
  /** Undefined until it is on chain. */
  readonly batch:
    | { readonly id: bigint; readonly txHash: Hex; readonly root: Hex; readonly proof: readonly Hex[] }
    | undefined
}

/** The payment that covers an entry; undefined while there is none. */
export async function findCoveringPayment(
  database: Database,
  { partition, accountId }: AccountRef,
  entry: bigint,
): Promise<ProvenPayment | undefined> {
  const row = await rowOf<ProvenRow>(
    database.query(
      `select ${provenColumns} from payments p join accounts a on a.partition = $1 and a.id = $2
        where p.partition = $1 and p.account_id = $2 and p.first_entry <= $3 and p.last_entry >= $3 and p.state <> 'failed'`,
      [partition, accountId, entry],
    ),
  )
  return row && readProven(row)
}

/** Payments of an account from a number on, without failed ones. */
export async function listProvenPayments(
  database: Database,
  { partition, accountId }: AccountRef,
  from: bigint,
  rowsMax: number,
): Promise<readonly ProvenPayment[]> {
  const rows = await rowsOf<ProvenRow>(
    database.query(
      `select ${provenColumns} from payments p join accounts a on a.partition = $1 and a.id = $2
        where p.partition = $1 and p.account_id = $2 and p.number >= $3 and p.state <> 'failed' order by p.number limit $4`,
      [partition, accountId, from, rowsMax],
    ),
  )
  return rows.map(readProven)
}

type ProvenRow = Payment & {
  readonly signature: Hex | undefined
  readonly batch: bigint | undefined
  readonly txHash: Hex | undefined
  readonly batchRoot: Hex | undefined
  readonly batchProof: Buffer | undefined
}

function readProven({
  signature,
  batch: id,
  txHash,
  batchRoot: root,
  batchProof,
  ...payment
}: ProvenRow): ProvenPayment {
  const isKnown = id !== undefined && txHash !== undefined && root !== undefined
  return { payment, signature, batch: isKnown ? { id, txHash, root, proof: splitProof(batchProof) } : undefined }
}

function splitProof(proof: Buffer | undefined): readonly Hex[] {
  return (proof?.toString('hex').match(/.{64}/g) ?? []).map((hash): Hex => `0x${hash}`)
}

const paymentColumns = `p.partition, p.account_id, coalesce(a.address, a.wallet) as address, a.wallet is not null as is_prepaid, p.number, p.epoch::int as epoch, p.first_entry, p.last_entry, p.value, p.state,
  p.gateway_id, '0x' || encode(p.previous_root, 'hex') as previous_root, '0x' || encode(p.root, 'hex') as root, p.authorized_at`
const provenColumns = `${paymentColumns}, '0x' || encode(p.signature, 'hex') as signature, p.batch, '0x' || encode(p.tx_hash, 'hex') as tx_hash, '0x' || encode(p.batch_root, 'hex') as batch_root,
  p.batch_proof`

function bytesOf(hex: string | undefined): Buffer | undefined {
  return hex === undefined ? undefined : Buffer.from(hex.slice(2), 'hex')
}
