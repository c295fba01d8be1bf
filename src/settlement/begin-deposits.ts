import type { Database } from '../db/database.ts'
import { beginCursors } from '../ledger/chain-cursors.ts'
import type { Chain } from './chain.ts'
import { depositCursors } from './deposits.ts'

export type BeginOptions = {
  readonly database: Database
  readonly chain: Pick<Chain, 'finalBlock'>
  /** The first block to be read, where an operator knows better. */
  readonly fromBlock: number | undefined
}

/**
 * Says from where the chain is read, once, before this service gives any address out. While no account has one, nobody can have
 * sent anything: what came before the head is history of strangers, and years of it take hours to read. Afterwards nothing is
 * changed: reading goes on where it stopped. Accounts with addresses and no place to begin are another copy's: all is read.
 */
export async function beginDeposits({ database, chain, fromBlock }: BeginOptions): Promise<void> {
  if (fromBlock !== undefined) return beginCursors(database, depositCursors, BigInt(fromBlock) - 1n)
  // The head first: an address that another node gives out meanwhile is younger, and so is what is sent there.
  const head = await chain.finalBlock()
  await beginCursors(database, depositCursors, head, { onlyWithoutAddresses: true })
}
