/** How long the next read waits for one that is stuck, for example on a connection that died silently. */
const turnMsMax = 250

/** Reads rows by key, many with one statement: calls that arrive during a read share the next one. */
export class SharedRead<Value> {
  readonly #read: (keys: readonly string[]) => Promise<ReadonlyMap<string, Value>>
  #turn: Promise<void> = Promise.resolve()
  #next: { readonly keys: Set<string>; readonly values: Promise<ReadonlyMap<string, Value>> } | undefined

  constructor(read: (keys: readonly string[]) => Promise<ReadonlyMap<string, Value>>) {
    this.#read = read
  }

  /** Undefined when there is no such row. The returned value was read after the call began. */
  async find(key: string): Promise<Value | undefined> {
    this.#next ??= this.#schedule()
    this.#next.keys.add(key)
    return (await this.#next.values).get(key)
  }

  #schedule() {
    const keys = new Set<string>()
    const values = this.#turn.then(() => {
      this.#next = undefined
      const read = this.#read([...keys])
      this.#turn = new Promise((resolve) => {
        const timer = setTimeout(resolve, turnMsMax)
        const end = () => {
          clearTimeout(timer)
          resolve()
        }
        read.then(end, end)
      })
      return read
    })
    return { keys, values }
  }
}
