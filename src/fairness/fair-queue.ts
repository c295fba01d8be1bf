/**
 * A queue that serves accounts in turn (deficit round robin). Each turn grants an account one quantum of work, so an account with a
 * long backlog delays the others by at most one quantum per turn. The weight of an item is known only after it was served, so an
 * account can overdraw its turn; it then waits longer for the next one.
 */
export class FairQueue<Item> {
  readonly #quantum: number
  /** In order of turns: the first lane is served next. */
  readonly #lanes = new Map<string, Lane<Item>>()
  #length = 0

  constructor(quantum: number) {
    this.#quantum = quantum
  }

  get length(): number {
    return this.#length
  }

  push(account: string, item: Item): void {
    const lane = this.#lanes.get(account)
    if (lane === undefined) this.#lanes.set(account, { items: [item], left: this.#quantum })
    else lane.items.push(item)
    this.#length += 1
  }

  /** The item whose turn it is, of an account that `mayServe`. It stays in the queue until `served` reports that it is done. */
  peek(mayServe: (account: string) => boolean = () => true): Item | undefined {
    for (const [account, lane] of this.#lanes) {
      if (!mayServe(account)) continue
      if (lane.left > 0) return lane.items[0]
      // The turn is used up: move the account behind the others and grant the next quantum. A map iterates in insertion order.
      lane.left += this.#quantum
      this.#lanes.delete(account)
      this.#lanes.set(account, lane)
    }
    return undefined
  }

  /** Charges `weight` to the account whose item `peek` returned, and removes the item when it is done. */
  served(account: string, weight: number, isDone: boolean): void {
    const lane = this.#lanes.get(account)!
    lane.left -= weight
    if (isDone) this.#drop(account, lane, 0)
  }

  /** Returns false when the item is no longer in the queue. */
  remove(account: string, item: Item): boolean {
    const lane = this.#lanes.get(account)
    const place = lane?.items.indexOf(item) ?? -1
    if (lane === undefined || place === -1) return false
    this.#drop(account, lane, place)
    return true
  }

  /** Removes and returns all items. */
  drain(): readonly Item[] {
    const items = [...this.#lanes.values()].flatMap((lane) => lane.items)
    this.#lanes.clear()
    this.#length = 0
    return items
  }

  #drop(account: string, lane: Lane<Item>, place: number): void {
    lane.items.splice(place, 1)
    this.#length -= 1
    if (lane.items.length === 0) this.#lanes.delete(account)
  }
}

type Lane<Item> = {
  readonly items: Item[]
  /** Work left in this turn. Negative after an overdraft. */
  left: number
}
