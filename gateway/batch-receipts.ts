import type { Hex } from 'viem'
import type { Database } from '../src/db/database.ts'
import { type ReceiptProof, ReceiptTree } from './receipt-tree.ts'
import { lowerCase } from './terms.ts'

/** The position of a transfer within its batch, counted from 1. */
export type BatchPlace = { readonly position: number; readonly size: number }

type BatchTree = {
  /** By transfer: the index of its leaf, and its position among all rows, including those without a receipt. */
  readonly leaves: ReadonlyMap<string, { readonly index: number; readonly position: number }>
  readonly tree: ReceiptTree
  readonly size: number
}

const keptMax = 16

/**
 * Proofs of receipts. All clients of a batch ask soon after it was sent, so the trees of the latest batches are cached: hashing a
 * tree again for each of its leaves would be most of the cost of settlement. The rows of a batch never change.
 */
export class BatchReceipts {
  readonly #database: Database
  readonly #trees = new Map<bigint, Promise<BatchTree>>()

  constructor(database: Database) {
    this.#database = database
  }

  /** Undefined when the transfer came without a receipt. */
  async prove(
    batch: bigint,
    transfer: string,
  ): Promise<{ readonly proof: ReceiptProof; readonly place: BatchPlace } | undefined> {
    const { leaves, tree, size } = await this.#treeOf(batch)
    const leaf = leaves.get(transfer)
    return leaf && { proof: tree.prove(leaf.index), place: { position: leaf.position, size } }
  }

  #treeOf(batch: bigint): Promise<BatchTree> {
    const kept = this.#trees.get(batch)
    if (kept !== undefined) return kept
    const made = this.#load(batch)
    this.#trees.set(batch, made)
    made.catch(() => this.#trees.delete(batch))
    if (this.#trees.size > keptMax) this.#trees.delete(this.#trees.keys().next().value!)
    return made
  }

  async #load(batch: bigint): Promise<BatchTree> {
    const rows = await this.#database.query<{ transfer: string; hash: Hex | null }>(
      'select transfer, receipt_hash as hash from batch_rows where batch = $1 order by position',
      [batch],
    )
    const receipts = rows
      .map(({ transfer, hash }, at) => ({ transfer, hash, position: at + 1 }))
      .filter((row): row is typeof row & { hash: Hex } => row.hash !== null)
    const leaves = new Map(receipts.map(({ transfer, position }, index) => [transfer, { index, position }]))
    return { leaves, tree: new ReceiptTree(receipts.map(({ hash }) => lowerCase(hash))), size: rows.length }
  }
}
