import type { Hex } from 'viem'
import type { Database } from '../db/database.ts'
import { type ReceiptProof, ReceiptTree } from './receipt-tree.ts'
import { lowerCase } from './terms.ts'

type BatchTree = { readonly places: ReadonlyMap<string, number>; readonly tree: ReceiptTree }

const keptMax = 16

/**
 * Proofs of receipts. Everybody of a batch asks soon after it was sent, so the trees of the last ones are kept: hashing a
 * tree anew for each of its leaves is most of what settling would cost. The rows of a batch never change.
 */
export class BatchReceipts {
  readonly #database: Database
  readonly #trees = new Map<bigint, Promise<BatchTree>>()

  constructor(database: Database) {
    this.#database = database
  }

  /** Undefined when the transfer came without a receipt. */
  async prove(batch: bigint, transfer: string): Promise<ReceiptProof | undefined> {
    const { places, tree } = await this.#treeOf(batch)
    const place = places.get(transfer)
    return place === undefined ? undefined : tree.prove(place)
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
    const rows = await this.#database.query<{ transfer: string; hash: Hex }>(
      'select transfer, receipt_hash as hash from batch_rows where batch = $1 and receipt_hash is not null order by position',
      [batch],
    )
    const places = new Map(rows.map(({ transfer }, place) => [transfer, place]))
    return { places, tree: new ReceiptTree(rows.map(({ hash }) => lowerCase(hash))) }
  }
}
