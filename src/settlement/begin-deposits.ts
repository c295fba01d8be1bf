import type { Database } from '../db/database.ts'
import { beginCursors, readCursor } from '../ledger/chain-cursors.ts'
import { depositCursors } from './deposits.ts'

export type BeginOptions = {
  readonly database: Database
  /** Called at the very first start only, so that a slow node cannot delay later starts. */
  readonly readHead: () => Promise<bigint>
  /** The operator's choice of the first block. */
  readonly fromBlock: number | undefined
}

/**
 * Sets the block from which the chain is read, once, before the service hands out deposit addresses. While no account has an address,
 * no deposit can exist, so reading begins at the head: years of earlier blocks would take hours. If accounts have addresses but
 * there is no cursor, the database is a copy from elsewhere and the whole chain is read.
 */
export async function beginDeposits({ database, readHead, fromBlock }: BeginOptions): Promise<void> {
  const known = await Promise.all(depositCursors.map((name) => readCursor(database, name)))
  if (known.every((block) => block !== undefined)) return
  if (fromBlock !== undefined) return beginCursors(database, depositCursors, BigInt(fromBlock) - 1n)
  // The head is read first: deposits to an address that another node assigns in the meantime are in later blocks.
  const head = await readHead()
  await beginCursors(database, depositCursors, head, { onlyWithoutAddresses: true })
}
