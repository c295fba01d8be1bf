/** The bytes of all bodies that are being read now, with a limit: what is read before a hold costs its sender nothing. */
export class BodyBudget {
  readonly #bytesMax: number
  #bytes = 0

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax
  }

  get bytes(): number {
    return this.#bytes
  }

  /** Counts what has arrived; false when that is more than there is room for. It is given back all the same. */
  take(bytes: number): boolean {
    this.#bytes += bytes
    return this.#bytes <= this.#bytesMax
  }

  giveBack(bytes: number): void {
    this.#bytes -= bytes
  }
}
