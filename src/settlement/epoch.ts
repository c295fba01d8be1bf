import type { Database } from '../db/database.ts'
import { OperatorError } from '../errors.ts'
import { openPaymentStates } from '../ledger/states.ts'

/**
 * The epoch is part of every nonce: it is raised only when no payment is under way, and never lowered. Checked when a node starts, and
 * again under the lock of settlement by `beginEpoch`.
 */
export async function requireEpoch(database: Database, epoch: number): Promise<void> {
  const known = await readEpoch(database)
  if (known === null || known === epoch) return
  const [row] = await database.query<{ open: number }>(
    `select count(*)::int as open from payments where state in ${openPaymentStates}`,
  )
  if (epoch < known || row!.open > 0) throw new EpochRefusal(epoch, known, row!.open)
}

/** From here on the ledger is in that epoch. Called under the lock of settlement, when nobody else makes payments. */
export async function beginEpoch(database: Database, epoch: number): Promise<void> {
  const known = await readEpoch(database)
  // Payments that are under way keep the epoch in which they were made.
  if (known !== null && epoch < known) throw new EpochRefusal(epoch, known, 0)
  if (known === epoch) return
  await database.query('update ledger_state set settlement_epoch = greatest(settlement_epoch, $1)', [epoch])
}

/** Null before settlement first ran. */
async function readEpoch(database: Database): Promise<number | null> {
  const [row] = await database.query<{ epoch: number | null }>('select settlement_epoch as epoch from ledger_state')
  return row!.epoch
}

class EpochRefusal extends OperatorError {
  constructor(epoch: number, known: number, open: number) {
    super(
      `SETTLEMENT_EPOCH is ${epoch}, but this ledger is in epoch ${known}${open > 0 ? ` with ${open} payments on their way` : ''}: set it to ${known}. It may only be raised, and only when penny settle status shows no payment that is not final.`,
    )
  }
}
