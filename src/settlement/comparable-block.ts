import type { Database } from '../db/database.ts'
import { readCursor } from '../ledger/chain-cursors.ts'
import type { Chain } from './chain.ts'

/**
 * The node's latest block, at which balances can be compared with ledger sums that were read before. Throws when the node is behind the
 * ledger, as one of several nodes behind one URL may be: money that has arrived would seem to be missing.
 */
export async function comparableBlock(database: Database, chain: Chain): Promise<bigint> {
  const read = await readCursor(database, 'deposits')
  const block = await chain.finalBlock()
  if (read !== undefined && block < read) throw new NodeBehindError(block, read)
  return block
}

class NodeBehindError extends Error {
  constructor(block: bigint, read: bigint) {
    super(
      `the chain node is at block ${block}, but the ledger has read up to block ${read}: balances were not compared`,
    )
    this.name = 'NodeBehindError'
  }
}
