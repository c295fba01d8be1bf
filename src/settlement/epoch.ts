import type { Database } from '../db/database.ts'
import { OperatorError } from '../errors.ts'
import { moveCursor, readCursor } from '../ledger/chain-cursors.ts'
import { openPaymentStates } from '../ledger/open-states.ts'

const cursor = 'settlement epoch'

/**
 * The epoch is part of every nonce: it is raised only when no payment is on its way, and never lowered. Said at the start of a
 * node, before the one that settles has been heard; what counts is `beginEpoch`.
 */
export async function requireEpoch(database: Database, epoch: number): Promise<void> {
  await check(database, epoch, ['payments', 'returns'])
}

/**
 * The same under the lock of settlement, when nobody else hands anything in; from here on the ledger is in that epoch. Since the
 * start another node may have gone on in the one before. Its payments are no hindrance: they keep the epoch of their receipts.
 * Credit on its way back has no receipt: under another epoch it would be paid back a second time.
 */
export async function beginEpoch(database: Database, epoch: number): Promise<void> {
  await check(database, epoch, ['returns'])
  await moveCursor(database, cursor, BigInt(epoch))
}

async function check(database: Database, epoch: number, kinds: readonly ('payments' | 'returns')[]): Promise<void> {
  const known = await readCursor(database, cursor)
  if (known === undefined || known === BigInt(epoch)) return
  const [row] = await database.query<{ payments: number; returns: number }>(
    // Each over a partial index of its own: there may be millions of payments that are final.
    `select (select count(*) from settlements where receipt_number is not null and state in ${openPaymentStates})::int
            + (select count(*) from settlements where receipt_number is null and state in ${openPaymentStates})::int as payments,
            (select count(*) from withdrawals where state = 'returning')::int as returns`,
  )
  const open = kinds.reduce((sum, kind) => sum + row![kind], 0)
  if (BigInt(epoch) < known || open > 0) throw new EpochRefusal(epoch, known, open)
}

class EpochRefusal extends OperatorError {
  constructor(epoch: number, known: bigint, open: number) {
    super(
      `SETTLEMENT_EPOCH is ${epoch}, but this ledger is in epoch ${known}${open > 0 ? ` with ${open} payments on their way` : ''}: set it to ${known}. It may only be raised, and only when penny settle status shows no payment that is not final.`,
    )
  }
}
