import { plainArray, textArray } from '../db/array-literal.ts'
import type { Database } from '../db/database.ts'
import { fromAtomic, type Usdc } from '../money/usdc.ts'
import { openPaymentStates } from './open-states.ts'

export type SettlementState =
  | 'none'
  | 'voided'
  | 'allocated'
  | 'signed'
  | 'submitted'
  | 'received'
  | 'batched'
  | 'confirmed'
  | 'completed'
  | 'failed'
  | 'unknown'

/** An ended request that has no receipt yet, with what the receipt says of it. */
export type EndedRow = {
  readonly partition: number
  readonly id: string
  readonly revision: number
  readonly account_id: string
  readonly address: string
  /** Absent for the debt that a withdrawal pays first: there is no request behind it. */
  readonly status: string | null
  readonly model: string | null
  readonly price_version: string | null
  readonly prompt_tokens: number | null
  readonly completion_tokens: number | null
  readonly search_calls: number | null
  readonly quote: bigint | null
  readonly created_at: Date | null
  readonly charged: bigint
  readonly value: bigint
  readonly nonce: bigint | null
  readonly ended_at: Date
}

/** The newest receipt of an account. */
export type ReceiptHead = { readonly account_id: string; readonly number: bigint; readonly hash: Buffer }

/**
 * Gives receipts to ended requests, oldest first. `write` is handed the rows and the accounts' last receipts and returns one
 * hash and number for each row. Returns how many there were. The epoch of their nonces is kept with them.
 */
export async function writeReceipts(
  database: Database,
  rowsMax: number,
  epoch: number,
  write: (rows: readonly EndedRow[], heads: readonly ReceiptHead[]) => readonly NumberedReceipt[],
): Promise<number> {
  return database.transaction(async (connection) => {
    const rows = await connection.query<EndedRow>(
      `select s.partition, s.id, s.revision, s.account_id, a.address, r.status, r.model, r.price_version, r.prompt_tokens,
              r.completion_tokens, r.search_calls, r.quote, r.created_at, s.charged, s.value, s.nonce, s.ended_at
         from (select * from settlements where receipt_number is null order by ended_at limit $1
                  for no key update skip locked) s
         join accounts a on a.partition = s.partition and a.id = s.account_id and a.address is not null
         left join requests r on r.partition = s.partition and r.id = s.id
        order by s.ended_at, s.id, s.revision`,
      [rowsMax],
    )
    if (rows.length === 0) return 0
    const accounts = new Map(rows.map((row) => [row.account_id, row.partition]))
    const heads = await connection.query<ReceiptHead>(
      `select u.account_id, h.receipt_number as number, h.receipt_hash as hash
         from unnest($1::smallint[], $2::uuid[]) as u (partition, account_id)
        cross join lateral (select s.receipt_number, s.receipt_hash from settlements s
                             where s.partition = u.partition and s.account_id = u.account_id and s.receipt_number is not null
                             order by s.receipt_number desc limit 1) h`,
      [plainArray([...accounts.values()]), plainArray([...accounts.keys()])],
    )
    const receipts = write(rows, heads)
    await connection.query(
      `update settlements s set receipt_number = u.number, receipt_hash = decode(u.hash, 'hex'), epoch = $6
         from unnest($1::smallint[], $2::uuid[], $3::smallint[], $4::bigint[], $5::text[])
              as u (partition, id, revision, number, hash)
        where s.partition = u.partition and s.id = u.id and s.revision = u.revision and s.receipt_number is null`,
      [
        plainArray(rows.map((row) => row.partition)),
        plainArray(rows.map((row) => row.id)),
        plainArray(rows.map((row) => row.revision)),
        plainArray(receipts.map((receipt) => receipt.number)),
        plainArray(receipts.map((receipt) => receipt.hash.slice(2))),
        epoch,
      ],
    )
    return rows.length
  })
}

// Receipts of before 0010_receipt_epoch.sql have none of their own.
const epochOfReceipt = `coalesce(s.epoch,
              (select c.block from chain_cursors c where c.name = 'settlement epoch of the first receipts'))`

/** A row that has its receipt, with the hash of the receipt before it and what is known of its batch. */
export type SettledRow = EndedRow & {
  readonly receipt_number: bigint
  readonly previous_hash: Buffer | null
  /** Of its nonce. */
  readonly epoch: bigint
  readonly signature: Buffer | null
  readonly batch: bigint | null
  readonly tx_hash: Buffer | null
  readonly receipt_root: Buffer | null
  readonly receipt_proof: Buffer | null
}

/** The last revision of an ended request that has a receipt. Undefined while there is none. */
export async function findSettledRow(
  database: Database,
  partition: number,
  id: string,
): Promise<SettledRow | undefined> {
  const [row] = await database.query<SettledRow>(
    `select s.partition, s.id, s.revision, s.account_id, a.address, r.status, r.model, r.price_version, r.prompt_tokens,
            r.completion_tokens, r.search_calls, r.quote, r.created_at, s.charged, s.value, s.nonce, s.ended_at,
            s.receipt_number, s.signature, s.batch, s.tx_hash, s.receipt_root, s.receipt_proof,
            (select p.receipt_hash from settlements p where p.partition = s.partition and p.account_id = s.account_id
                                                        and p.receipt_number = s.receipt_number - 1) as previous_hash,
            ${epochOfReceipt} as epoch
       from settlements s
       join accounts a on a.partition = s.partition and a.id = s.account_id
       join requests r on r.partition = s.partition and r.id = s.id
      where s.partition = $1 and s.id = $2 and s.receipt_number is not null
      order by s.revision desc limit 1`,
    [partition, id],
  )
  return row
}

export type NumberedReceipt = { readonly number: bigint; readonly hash: string }

/** A payment on its way to the gateway, or there. */
export type Payment = {
  readonly partition: number
  readonly id: string
  readonly accountId: string
  readonly address: string
  readonly value: Usdc
  readonly nonce: bigint
  /** Of its nonce, as its receipt has it: whatever the epoch is by now, it may have been handed in under this one. */
  readonly epoch: number
  /** The instant its window is reckoned from. */
  readonly authorizedAt: Date
  readonly state: SettlementState
  readonly railId: string | undefined
  readonly receiptHash: string
}

/**
 * Payments in one of these states that nobody has touched for a while; oldest first. They have their receipts. The longer
 * one takes the less often it is looked at, down to once a minute: a gateway that is slow or away is not besieged.
 */
export async function findPayments(
  database: Database,
  states: readonly SettlementState[],
  untouchedMs: number,
  rowsMax: number,
): Promise<readonly Payment[]> {
  const rows = await database.query<PaymentRow>(
    `select s.partition, s.id, s.account_id, a.address, s.value, s.nonce, ${epochOfReceipt} as epoch, s.authorized_at,
            s.state, s.rail_id, encode(s.receipt_hash, 'hex') as receipt_hash
       from settlements s
       join accounts a on a.partition = s.partition and a.id = s.account_id
      where s.state in ${openPaymentStates}
        and s.state = any ($1) and s.receipt_number is not null
        and s.changed_at <= clock_timestamp() - greatest(
              $2 * interval '1 millisecond', case when s.reason is null then interval '0' else interval '10 seconds' end,
              least((s.changed_at - s.ended_at) / 4, interval '60 seconds'))
      order by s.changed_at limit $3`,
    [states, untouchedMs, rowsMax],
  )
  return rows.map((row) => ({
    partition: row.partition,
    id: row.id,
    accountId: row.account_id,
    address: row.address,
    value: fromAtomic(row.value),
    nonce: row.nonce,
    epoch: Number(row.epoch),
    authorizedAt: row.authorized_at,
    state: row.state,
    railId: row.rail_id ?? undefined,
    receiptHash: `0x${row.receipt_hash}`,
  }))
}

/** Looked at, and nothing new: the others are first now. */
export async function touchPayments(database: Database, payments: readonly Payment[]): Promise<void> {
  for (const [partition, group] of Map.groupBy(payments, (payment) => payment.partition)) {
    await database.query(
      `update settlements s set changed_at = clock_timestamp()
         from unnest($2::uuid[], $3::text[]) as u (id, state)
        where s.partition = $1 and s.id = u.id and s.revision = 0 and s.state = u.state`,
      [partition, plainArray(group.map(({ id }) => id)), plainArray(group.map(({ state }) => state))],
    )
  }
}

/** What the gateway says of a payment. */
export type PaymentNews = {
  readonly payment: Pick<Payment, 'partition' | 'id' | 'accountId'>
  readonly state: SettlementState
  readonly railId?: string | undefined
  readonly batch?: bigint | undefined
  readonly transactionHash?: string | undefined
  readonly receiptRoot?: string | undefined
  readonly receiptProof?: readonly string[] | undefined
  /** Among the payments of its batch, counted from 1. */
  readonly place?: { readonly position: number; readonly size: number } | undefined
  readonly reason?: string | undefined
}

/** Writes news of payments down, in one call per partition. What is final stays as it is. Returns the ids that changed. */
export async function settlePayments(database: Database, news: readonly PaymentNews[]): Promise<ReadonlySet<string>> {
  const changed = new Set<string>()
  for (const [partition, group] of Map.groupBy(news, ({ payment }) => payment.partition)) {
    const rows = await database.queryPrepared<{ id: string }>(
      'settle_payments_with_place',
      'select id, state from settle_payments($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)',
      [
        partition,
        plainArray([...new Set(group.map(({ payment }) => payment.accountId))]),
        plainArray(group.map(({ payment }) => payment.id)),
        plainArray(group.map(({ state }) => state)),
        textArray(group.map(({ railId }) => railId ?? null)),
        plainArray(group.map(({ batch }) => batch ?? null)),
        bytesArray(group.map(({ transactionHash }) => transactionHash)),
        bytesArray(group.map(({ receiptRoot }) => receiptRoot)),
        bytesArray(
          group.map(({ receiptProof }) => receiptProof && `0x${receiptProof.map((item) => item.slice(2)).join('')}`),
        ),
        textArray(group.map(({ reason }) => reason ?? null)),
        plainArray(group.map(({ place }) => place?.position ?? null)),
        plainArray(group.map(({ place }) => place?.size ?? null)),
      ],
    )
    for (const { id } of rows) changed.add(id)
  }
  return changed
}

/**
 * A payment that was never handed in and whose window grows short gets a new one, under the same nonce. Returns the instant it
 * is reckoned from now: what is signed must be what the row says, so that it can be signed again.
 */
export async function renewWindow(
  database: Database,
  { partition, id, authorizedAt }: Pick<Payment, 'partition' | 'id' | 'authorizedAt'>,
): Promise<Date> {
  const [row] = await database.query<{ authorized_at: Date }>(
    `update settlements set authorized_at = clock_timestamp(), changed_at = clock_timestamp()
      where partition = $1 and id = $2 and revision = 0 and state in ('allocated', 'unknown') returning authorized_at`,
    [partition, id],
  )
  return row?.authorized_at ?? authorizedAt
}

/** How payments stand, by state. */
export type SettlementTotals = {
  readonly state: SettlementState
  readonly count: number
  readonly value: Usdc
  readonly oldest: Date | undefined
}

export async function summarizeSettlements(database: Database): Promise<readonly SettlementTotals[]> {
  const rows = await database.query<{ state: SettlementState; count: number; value: bigint; oldest: Date | null }>(
    `select state, count(*)::int as count, coalesce(sum(value), 0)::bigint as value, min(ended_at) as oldest
       from settlements group by state order by state`,
  )
  return rows.map((row) => ({ ...row, value: fromAtomic(row.value), oldest: row.oldest ?? undefined }))
}

type PaymentRow = {
  readonly partition: number
  readonly id: string
  readonly account_id: string
  readonly address: string
  readonly value: bigint
  readonly nonce: bigint
  readonly epoch: bigint
  readonly authorized_at: Date
  readonly state: SettlementState
  readonly rail_id: string | null
  readonly receipt_hash: string
}

function bytesArray(values: readonly (string | undefined)[]): string {
  return textArray(values.map((value) => (value === undefined ? null : `\\x${value.slice(2)}`)))
}
