/**
 * Work that waits, served in turn by account (deficit round robin): each turn an account gets as much as the quantum, so that
 * one with a mountain of work delays the others by one quantum and no more. What work weighs is known when it is served, so
 * an account may overdraw its turn; it waits the longer for its next.
 */
export class FairQueue<Item> {
  readonly #quantum: number
  /** In the order of their turns: the first is served. */
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

  /** The item whose turn it is. It stays until `served` says that it is done. */
  peek(): Item | undefined {
    return this.#first()?.[1].items[0]
  }

  /** So much was done for the item that `peek` gave. */
  served(weight: number, isDone: boolean): void {
    const [account, lane] = this.#first()!
    lane.left -= weight
    if (isDone) this.#drop(account, lane, 0)
  }

  /** False when it does not wait any more. */
  remove(account: string, item: Item): boolean {
    const lane = this.#lanes.get(account)
    const place = lane?.items.indexOf(item) ?? -1
    if (lane === undefined || place === -1) return false
    this.#drop(account, lane, place)
    return true
  }

  /** Takes everything out. */
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

  #first(): readonly [string, Lane<Item>] | undefined {
    for (const [account, lane] of this.#lanes) {
      if (lane.left > 0) return [account, lane]
      // The turn is used up: behind the others, with the next one's quantum. A map is iterated in the order of insertion.
      lane.left += this.#quantum
      this.#lanes.delete(account)
      this.#lanes.set(account, lane)
    }
    return undefined
  }
}

type Lane<Item> = {
  readonly items: Item[]
  /** Of this turn. */
  left: number
}
