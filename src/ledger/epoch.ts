import type { Database } from '../db/database.ts'
import { OperatorError } from '../errors.ts'
import { openPaymentStates } from './states.ts'

/**
 * Throws unless the epoch may be used: it is part of every nonce, so it is never lowered, and raised only while no payment is open.
 * Checked when a node starts, and again by `beginEpoch` under the settlement lock.
 */
export async function requireEpoch(database: Database, epoch: number): Promise<void> {
  const known = await readEpoch(database)
  if (known === null || known === epoch) return
  const [row] = await database.query<{ open: number }>(
    `select count(*)::int as open from payments where state in ${openPaymentStates}`,
  )
  if (epoch < known || row!.open > 0) throw new EpochRefusal(epoch, known, row!.open)
}

/** Moves the ledger to that epoch. Call it under the settlement lock, when no other process creates payments. */
export async function beginEpoch(database: Database, epoch: number): Promise<void> {
  const known = await readEpoch(database)
  // Open payments keep the epoch in which they were created.
  if (known !== null && epoch < known) throw new EpochRefusal(epoch, known, 0)
  if (known === epoch) return
  await database.query('update ledger_state set settlement_epoch = greatest(settlement_epoch, $1)', [epoch])
}

/** Null before the first settlement run. */
export async function readEpoch(database: Database): Promise<number | null> {
  const [row] = await database.query<{ epoch: number | null }>('select settlement_epoch as epoch from ledger_state')
  return row!.epoch
}

class EpochRefusal extends OperatorError {
  constructor(epoch: number, known: number, open: number) {
    super(
      `SETTLEMENT_EPOCH is ${epoch}, but this ledger is in epoch ${known}${open > 0 ? ` with ${open} open payments` : ''}: set it to ${known}. It may only be raised, and only when penny settle status shows no open payment.`,
    )
  }
}
