import type { Database } from '../db/database.ts'
import { StartRefusal } from '../errors.ts'
import { moveCursor, readCursor } from '../ledger/chain-cursors.ts'

const cursor = 'settlement epoch'

/**
 * The epoch is part of every nonce. Under another one, payments that are on their way would be signed under new nonces and
 * paid a second time: it is raised only when none is, and never lowered.
 */
export async function requireEpoch(database: Database, epoch: number): Promise<void> {
  const known = await readCursor(database, cursor)
  if (known === BigInt(epoch)) return
  const [row] = await database.query<{ open: number }>(
    `select ((select count(*) from settlements
               where state in ('allocated', 'signed', 'submitted', 'received', 'batched', 'confirmed', 'unknown'))
             -- Credit that is on its way back has a nonce too.
             + (select count(*) from withdrawals where state = 'returning'))::int as open`,
  )
  if (known !== undefined && (BigInt(epoch) < known || row!.open > 0)) {
    throw new EpochRefusal(epoch, known, row!.open)
  }
  await moveCursor(database, cursor, BigInt(epoch))
}

class EpochRefusal extends StartRefusal {
  constructor(epoch: number, known: bigint, open: number) {
    super(
      `SETTLEMENT_EPOCH is ${epoch}, but this ledger is in epoch ${known}${open > 0 ? ` with ${open} payments on their way` : ''}: set it to ${known}. It may only be raised, and only when penny settle status shows no payment that is not final.`,
    )
  }
}
