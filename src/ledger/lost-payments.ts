import { randomUUID } from 'node:crypto'
import type { Connection, Database } from '../db/database.ts'
import { lockAccount } from '../db/lock-account.ts'
import type { PaymentState } from './states.ts'

// A ledger that was restored from a backup lacks the requests after it. Their payments are on chain.

/** A payment that the gateway has and the ledger lacks. */
export type LostPayment = {
  readonly number: bigint
  readonly epoch: number
  /** Below 0 the seller paid the account. */
  readonly value: bigint
  /** The payment's state at the gateway. */
  readonly state: Extract<PaymentState, 'received' | 'batched' | 'completed'>
  readonly gatewayId: string
  readonly batch: bigint | undefined
  readonly transactionHash: string | undefined
}

type AccountId = { readonly partition: number; readonly id: string }

/** The number of the first payment that the ledger lacks. */
export async function readNextPayment(database: Database, { partition, id }: AccountId): Promise<bigint> {
  const [row] = await database.query<{ next: bigint }>(
    'select payments + 1 as next from accounts where partition = $1 and id = $2',
    [partition, id],
  )
  return row!.next
}

/**
 * Books lost payments of an account, in the order of their numbers. Each covers the unpaid entries in the ledger, plus one new
 * entry for the rest: the charges of the lost requests. Book everything that the account has lost in one transaction: the next
 * search begins at the first payment that the ledger lacks.
 */
export async function bookLostPayments(
  connection: Connection,
  account: AccountId,
  payments: readonly LostPayment[],
): Promise<void> {
  const { partition, id } = account
  await lockAccount(connection, { partition, accountId: id })
  for (const payment of payments.toSorted((one, other) => Number(one.number - other.number))) {
    const [books] = await connection.query<{ entries: bigint; covered_entry: bigint; unpaid: bigint }>(
      'select entries, covered_entry, charged - given_back - covered as unpaid from accounts where partition = $1 and id = $2',
      [partition, id],
    )
    const { entries, covered_entry: coveredEntry, unpaid } = books!
    const forgotten = payment.value - unpaid
    const last = forgotten === 0n && entries > coveredEntry ? entries : entries + 1n
    if (last > entries) {
      await connection.query(insertEntry, [partition, randomUUID(), id, last, -forgotten, `payment ${payment.number}`])
    }
    await connection.query(insertPayment, [
      partition,
      id,
      payment.number,
      coveredEntry + 1n,
      last,
      payment.value,
      payment.epoch,
      payment.state,
      payment.gatewayId,
      payment.batch ?? null,
      payment.transactionHash?.slice(2) ?? null,
    ])
    await connection.query(moveMoney, [
      partition,
      id,
      forgotten,
      last,
      payment.value,
      payment.state === 'completed' ? payment.value : 0n,
      payment.number,
    ])
  }
}

const insertEntry = `
  insert into adjustments (partition, id, account_id, entry, kind, amount, reason, made_by)
  values ($1, $2, $3, $4, 'recovery', $5, 'Requests that the restored ledger does not have, paid by ' || $6, 'penny recover')`

const insertPayment = `
  insert into payments (partition, account_id, number, first_entry, last_entry, value, epoch, state, reason, gateway_id, batch, tx_hash,
                        created_at, authorized_at, changed_at)
  values ($1, $2, $3, $4, $5, $6, $7, $8, 'recovered', $9, $10, decode($11, 'hex'), now(), now(), now())`

// Take credit last, as a withdrawal does.
const moveMoney = `
  update accounts a
     set gateway = a.gateway - least(a.gateway, $3), credit = a.credit - ($3 - least(a.gateway, $3)), charged = a.charged + $3,
         entries = greatest(a.entries, $4), covered_entry = $4, covered = a.covered + $5, paid = a.paid + $6,
         payments = greatest(a.payments, $7), unpaid_since = null
   where a.partition = $1 and a.id = $2`
