const smallBytesDefault = 64 * 1024

/**
 * The bytes of all bodies that are being read now, with a limit: what is read before a hold costs its sender nothing. Small bodies are
 * read whatever others send, or a few that send much, and slowly, would shut everybody out; the connections bound them.
 */
export class BodyBudget {
  readonly #bytesMax: number
  readonly #smallBytesMax: number
  #bytes = 0

  constructor(bytesMax: number, smallBytesMax = smallBytesDefault) {
    this.#bytesMax = bytesMax
    this.#smallBytesMax = smallBytesMax
  }

  get bytes(): number {
    return this.#bytes
  }

  /** Counts what has arrived of a body of so many bytes by now; false when there is no room for it. It is given back all the same. */
  take(bytes: number, ofBody: number): boolean {
    this.#bytes += bytes
    return this.#bytes <= this.#bytesMax || ofBody <= this.#smallBytesMax
  }

  giveBack(bytes: number): void {
    this.#bytes -= bytes
  }
}
