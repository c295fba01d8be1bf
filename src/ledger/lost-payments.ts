import { plainArray } from '../db/array-literal.ts'
import type { Connection, Database } from '../db/database.ts'
import type { Usdc } from '../money/usdc.ts'
import { createRequestId } from './request-id.ts'

// A ledger that was restored from a copy has forgotten the requests after it, but not the chain: their payments were made.

/** A payment that the gateway has and these books do not. */
export type LostPayment = {
  readonly partition: number
  readonly accountId: string
  readonly nonce: bigint
  readonly value: Usdc
  /** How the gateway says that it stands. */
  readonly state: 'received' | 'batched' | 'confirmed' | 'completed'
  readonly railId: string
  readonly batch: bigint | undefined
  readonly transactionHash: string | undefined
}

/** A request that the copy had open, and that was voided when the service came back: it may have been paid after all. */
export type VoidedPayment = { readonly id: string; readonly nonce: bigint }

export async function findVoidedSinceFreeze(
  database: Database,
  partition: number,
  accountId: string,
): Promise<readonly VoidedPayment[]> {
  return database.query<VoidedPayment>(
    `select r.id, r.nonce from requests r cross join ledger_state l
      where r.partition = $1 and r.account_id = $2 and r.voided and r.nonce is not null and r.ended_at >= l.frozen_at`,
    [partition, accountId],
  )
}

/** The first nonce that these books have not given out. */
export async function readNonceNext(database: Database, partition: number, accountId: string): Promise<bigint> {
  const [row] = await database.query<{ nonce_next: bigint }>(
    'select nonce_next from accounts where partition = $1 and id = $2',
    [partition, accountId],
  )
  return row!.nonce_next
}

/**
 * Takes payments of an account into the books whose requests are forgotten. Nobody can say any more what they cost, so they cost
 * nothing: all that was paid is credit of the account, and the operator bears the rest. They stand in the log as interrupted
 * requests. Returns those that were news: what has its nonce already is left alone. In one transaction with all that the account
 * has lost: it moves the account's next nonce, from which the search begins.
 */
export async function bookLostPayments(
  connection: Connection,
  payments: readonly LostPayment[],
  nowMs: number,
): Promise<readonly LostPayment[]> {
  const [first] = payments
  if (first === undefined) return []
  const { partition, accountId } = first
  await connection.query('select 1 from accounts where partition = $1 and id = $2 for no key update', [
    partition,
    accountId,
  ])
  // All at once: no index leads to a nonce, and the account may have millions of requests.
  const known = await connection.query<KnownRequest>(
    'select id, nonce, voided, authorized from requests where partition = $1 and account_id = $2 and nonce = any ($3::bigint[])',
    [partition, accountId, plainArray(payments.map(({ nonce }) => nonce))],
  )
  const booked: LostPayment[] = []
  for (const payment of payments) {
    const same = known.filter(({ nonce }) => nonce === payment.nonce)
    if (same.some(({ voided, authorized }) => !voided || authorized !== payment.value)) continue
    await book(connection, payment, same[0], nowMs)
    booked.push(payment)
  }
  return booked
}

type KnownRequest = {
  readonly id: string
  readonly nonce: bigint
  readonly voided: boolean
  readonly authorized: bigint
}

async function book(connection: Connection, payment: LostPayment, voided: KnownRequest | undefined, nowMs: number) {
  const { partition, accountId, nonce, value } = payment
  const id = createRequestId(partition, nowMs)
  if (voided === undefined) await connection.query(insertRequest, [partition, id, accountId, value, nonce])
  else
    await connection.query('update requests set voided = false where partition = $1 and id = $2', [
      partition,
      voided.id,
    ])
  await connection.query(upsertSettlement, [
    partition,
    voided?.id ?? id,
    accountId,
    value,
    nonce,
    payment.state,
    payment.railId,
    payment.batch ?? null,
    payment.transactionHash?.slice(2) ?? null,
  ])
  await connection.query(moveMoney, [partition, accountId, value, nonce, payment.state === 'completed' ? 0n : value])
}

const insertRequest = `
  insert into requests (partition, id, account_id, key_id, node, status, stream, created_at, ended_at, quote, authorized, nonce,
                        error_code)
  select $1, $2, $3, coalesce((select k.id from api_keys k where k.partition = $1 and k.account_id = $3 order by k.id limit 1), $2),
         '00000000-0000-0000-0000-000000000000', 'failed', false, clock_timestamp(), clock_timestamp(), $4, $4, $5, 'interrupted'`

const upsertSettlement = `
  insert into settlements (partition, id, account_id, charged, value, nonce, authorized_at, state, rail_id, batch, tx_hash,
                           ended_at, changed_at)
  values ($1, $2, $3, 0, $4, $5, clock_timestamp(), $6, $7, $8, decode($9, 'hex'), clock_timestamp(), clock_timestamp())
  on conflict (partition, id, revision) do update
    set value = excluded.value, nonce = excluded.nonce, state = excluded.state, rail_id = excluded.rail_id,
        batch = excluded.batch, tx_hash = excluded.tx_hash, changed_at = excluded.changed_at`

const moveMoney = `
  update accounts a
     set gateway = a.gateway - $3, credit = a.credit + $3, authorized = a.authorized + $3, unsettled = a.unsettled + $5,
         settled = a.settled + $3 - $5, nonce_next = greatest(a.nonce_next, $4::bigint + 1)
   where a.partition = $1 and a.id = $2`
