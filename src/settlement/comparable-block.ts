import type { Database } from '../db/database.ts'
import { readCursor } from '../ledger/chain-cursors.ts'
import type { Chain } from './chain.ts'

/**
 * The block at which balances can be compared with books that were read before: the node's last. Of several nodes behind one
 * address one may be late. What it says is of the past, and where the books know better, money that is there would seem missing.
 */
export async function comparableBlock(database: Database, chain: Chain): Promise<bigint> {
  const read = await readCursor(database, 'deposits')
  const block = await chain.finalBlock()
  if (read !== undefined && block < read) throw new NodeBehindError(block, read)
  return block
}

class NodeBehindError extends Error {
  constructor(block: bigint, read: bigint) {
    super(`the node is at block ${block}, and the books have read up to ${read}: nothing was compared`)
    this.name = 'NodeBehindError'
  }
}
