import { randomUUID } from 'node:crypto'
import type { Address } from 'viem'
import { plainArray, textArray } from '../src/db/array-literal.ts'
import { BatchQueue } from '../src/db/batch.ts'
import { type Connection, type Database, isConnectionLost } from '../src/db/database.ts'
import { type Payment, PaymentRefusedError } from './payment.ts'

export type SettleOptions = {
  readonly database: Database
  /** The maximum age of our view of the chain when a payment is accepted. */
  readonly chainAgeMsMax: number
  /** Called with the number of transfers that were stored. */
  readonly onStored?: (count: number) => void
}

type Call = { readonly id: string; readonly payment: Payment }
type Outcome = 'received' | 'nonce_already_used' | 'insufficient_balance'

/** The largest value of a column; no balance comes near it. */
const amountMax = 2n ** 63n - 1n

/**
 * Accepts payments. A payment is stored and its value reserved before it is answered. Payments that arrive together share one
 * commit. Each keeps the id it got on arrival, so a commit whose reply was lost can be run again.
 */
export class Settler {
  readonly #queue: BatchQueue<Call, Outcome>

  constructor(options: SettleOptions) {
    this.#queue = new BatchQueue({
      run: async (calls) => {
        const { database, chainAgeMsMax } = options
        const outcomes = await database.transaction((connection) => store(connection, calls, chainAgeMsMax))
        options.onStored?.(outcomes.filter((outcome) => outcome === 'received').length)
        return outcomes
      },
      isOutcomeUnknown: isConnectionLost,
      sizeMax: 256,
      queuedMax: 8_192,
    })
  }

  /** Returns the id of the new transfer. */
  async settle(payment: Payment): Promise<string> {
    if (payment.value > amountMax) throw new PaymentRefusedError('insufficient_balance', payment.payer)
    const id = randomUUID()
    const outcome = await this.#queue.add({ id, payment })
    if (outcome !== 'received') throw new PaymentRefusedError(outcome, payment.payer)
    return id
  }

  /** Waits for queued payments. */
  async stop(): Promise<void> {
    this.#queue.stop()
    await this.#queue.drained()
  }
}

/** Throws unless `settle` would accept the payment now. Reserves nothing. */
export async function requireSettleable(options: SettleOptions, payment: Payment): Promise<void> {
  const { payer, value } = payment
  await requireFreshChain(options.database, options.chainAgeMsMax)
  const used = await findUsed(options.database, [payment])
  if (used.size > 0) throw new PaymentRefusedError('nonce_already_used', payer)
  const [balance] = await options.database.query<{ free: bigint }>(
    'select available - pending - doubtful as free from balances where depositor = $1',
    [payer],
  )
  if (value > (balance?.free ?? 0n)) throw new PaymentRefusedError('insufficient_balance', payer)
}

async function store(
  connection: Connection,
  calls: readonly Call[],
  chainAgeMsMax: number,
): Promise<readonly Outcome[]> {
  const payments = calls.map(({ payment }) => payment)
  // Lock first, then read: in one statement the snapshot would be older than the lock.
  const free = await lockFree(connection, payments)
  await requireFreshChain(connection, chainAgeMsMax)
  const used = await findUsed(connection, payments)
  const accepted: Call[] = []
  const outcomes = calls.map((call): Outcome => {
    const { payer, nonce, value } = call.payment
    const key = `${payer} ${nonce}`
    const user = used.get(key)
    if (user !== undefined) return user === call.id ? 'received' : 'nonce_already_used'
    const left = (free.get(payer) ?? 0n) - value
    if (left < 0n) return 'insufficient_balance'
    free.set(payer, left)
    used.set(key, call.id)
    accepted.push(call)
    return 'received'
  })
  if (accepted.length > 0) await insert(connection, accepted)
  return outcomes
}

/** The amount that each payer can still spend. Locked in address order, like every other change of balances. */
async function lockFree(connection: Connection, payments: readonly Payment[]): Promise<Map<Address, bigint>> {
  const payers = [...new Set(payments.map(({ payer }) => payer))]
  const rows = await connection.queryPrepared<{ depositor: Address; free: bigint }>(
    'lock_payers',
    `select depositor, available - pending - doubtful as free from balances
      where depositor = any($1::text[]) order by depositor for update`,
    [textArray(payers)],
  )
  return new Map(rows.map(({ depositor, free }) => [depositor, free]))
}

async function requireFreshChain(connection: Connection, chainAgeMsMax: number): Promise<void> {
  const [chain] = await connection.queryPrepared<{ isFresh: boolean }>(
    'is_chain_fresh',
    `select at_head_since > clock_timestamp() - $1::int8 * interval '1 ms' as "isFresh" from chain`,
    [chainAgeMsMax],
  )
  if (chain?.isFresh !== true) throw new ChainBehindError()
}

/** Maps payer and nonce, with a space between, to the user of the nonce: the id of a transfer, or `foreign`. */
async function findUsed(connection: Connection, payments: readonly Payment[]): Promise<Map<string, string>> {
  const rows = await connection.queryPrepared<{ key: string; user: string }>(
    'find_used_nonces',
    `with asked as (select * from unnest($1::text[], $2::text[]) as asked (payer, nonce))
     select payer || ' ' || nonce as key, id::text as user from transfers join asked using (payer, nonce)
     union all
     select payer || ' ' || nonce, 'foreign' from foreign_authorizations join asked using (payer, nonce)`,
    [textArray(payments.map(({ payer }) => payer)), textArray(payments.map(({ nonce }) => nonce))],
  )
  return new Map(rows.map(({ key, user }) => [key, user]))
}

async function insert(connection: Connection, calls: readonly Call[]): Promise<void> {
  const payments = calls.map(({ payment }) => payment)
  await connection.queryPrepared(
    'insert_transfers',
    `insert into transfers (id, payer, payee, value, valid_after, valid_before, nonce, signature, receipt_hash)
     select * from unnest($1::uuid[], $2::text[], $3::text[], $4::int8[], $5::numeric[], $6::numeric[], $7::text[], $8::text[], $9::text[])`,
    [
      plainArray(calls.map(({ id }) => id)),
      textArray(payments.map(({ payer }) => payer)),
      textArray(payments.map(({ payee }) => payee)),
      plainArray(payments.map(({ value }) => value)),
      plainArray(payments.map(({ validAfter }) => validAfter)),
      plainArray(payments.map(({ validBefore }) => validBefore)),
      textArray(payments.map(({ nonce }) => nonce)),
      textArray(payments.map(({ signature }) => signature)),
      textArray(payments.map(({ receiptHash }) => receiptHash ?? null)),
    ],
  )
  await connection.queryPrepared(
    'set_aside',
    `update balances set pending = pending + total
       from (select payer, sum(value)::int8 as total from unnest($1::text[], $2::int8[]) as paid (payer, value) group by payer) paid
      where depositor = payer`,
    [textArray(payments.map(({ payer }) => payer)), plainArray(payments.map(({ value }) => value))],
  )
}

/** Our view of the chain is too old to accept payments. Nothing was stored; retry later. */
export class ChainBehindError extends Error {
  constructor() {
    super('The chain node is unreachable; payments are paused.')
    this.name = 'ChainBehindError'
  }
}
