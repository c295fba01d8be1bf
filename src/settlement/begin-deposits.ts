import type { Database } from '../db/database.ts'
import { beginCursors, readCursor } from '../ledger/chain-cursors.ts'
import { depositCursors } from './deposits.ts'

export type BeginOptions = {
  readonly database: Database
  /** Asked at the very first start only: a chain that takes its time holds no other start up. */
  readonly readHead: () => Promise<bigint>
  /** The first block to be read, where an operator knows better. */
  readonly fromBlock: number | undefined
}

/**
 * Says from where the chain is read, once, before this service gives any address out. While no account has one, nobody can have
 * sent anything: what came before the head is history of strangers, and years of it take hours to read. Afterwards nothing is
 * changed: reading goes on where it stopped. Accounts with addresses and no place to begin are another copy's: all is read.
 */
export async function beginDeposits({ database, readHead, fromBlock }: BeginOptions): Promise<void> {
  const known = await Promise.all(depositCursors.map((name) => readCursor(database, name)))
  if (known.every((block) => block !== undefined)) return
  if (fromBlock !== undefined) return beginCursors(database, depositCursors, BigInt(fromBlock) - 1n)
  // The head first: an address that another node gives out meanwhile is younger, and so is what is sent there.
  const head = await readHead()
  await beginCursors(database, depositCursors, head, { onlyWithoutAddresses: true })
}
