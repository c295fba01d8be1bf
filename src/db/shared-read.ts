/** Reads rows by key, many with one statement: calls that arrive during a read share the next one. */
export class SharedRead<Value> {
  readonly #read: (keys: readonly string[]) => Promise<ReadonlyMap<string, Value>>
  #underWay: Promise<unknown> = Promise.resolve()
  #next: { readonly keys: Set<string>; readonly values: Promise<ReadonlyMap<string, Value>> } | undefined

  constructor(read: (keys: readonly string[]) => Promise<ReadonlyMap<string, Value>>) {
    this.#read = read
  }

  /** Undefined when there is no such row. What is returned was read after the call. */
  async find(key: string): Promise<Value | undefined> {
    this.#next ??= this.#schedule()
    this.#next.keys.add(key)
    return (await this.#next.values).get(key)
  }

  #schedule() {
    const keys = new Set<string>()
    const values = this.#underWay.then(() => {
      this.#next = undefined
      return this.#read([...keys])
    })
    this.#underWay = values.catch(() => {})
    return { keys, values }
  }
}
