const depthMax = 4

/** Reads the CBOR (RFC 8949) of authenticators, in the canonical form that CTAP2 prescribes. Throws `MalformedCborError` for anything else. */
export class CborReader {
  readonly #data: Buffer
  #position = 0

  constructor(data: Buffer) {
    this.#data = data
  }

  bytes(length: number): Buffer {
    if (this.#position + length > this.#data.length) throw new MalformedCborError()
    this.#position += length
    return this.#data.subarray(this.#position - length, this.#position)
  }

  /** A number, Buffer, string, boolean, null, array or Map. */
  item(depth = 0): unknown {
    if (depth > depthMax) throw new MalformedCborError()
    const head = this.bytes(1)[0]!
    const [major, short] = [head >> 5, head & 0x1f]
    if (major === 7) return simpleOf(short)
    const value = this.#argument(short)
    if (major === 0) return value
    if (major === 1) return -1 - value
    if (major === 2) return this.bytes(value)
    if (major === 3) return this.bytes(value).toString('utf8')
    if (major === 4) return Array.from(this.#places(value), () => this.item(depth + 1))
    if (major !== 5) throw new MalformedCborError()
    const map = new Map<unknown, unknown>()
    for (const _ of this.#places(value)) {
      const key = this.item(depth + 1)
      if (map.has(key)) throw new MalformedCborError()
      map.set(key, this.item(depth + 1))
    }
    return map
  }

  /** Throws when something follows. */
  end(): void {
    if (this.#position !== this.#data.length) throw new MalformedCborError()
  }

  /** The value of the head, in its shortest form. */
  #argument(short: number): number {
    if (short < 24) return short
    const width = [1, 2, 4][short - 24]
    if (width === undefined) throw new MalformedCborError()
    const value = this.bytes(width).readUIntBE(0, width)
    if (value < [24, 0x100, 0x10000][short - 24]!) throw new MalformedCborError()
    return value
  }

  /** Each item takes a byte at least: a count that cannot be true is not looped over. */
  #places(count: number): ArrayLike<undefined> & Iterable<undefined> {
    if (count > this.#data.length - this.#position) throw new MalformedCborError()
    return new Array<undefined>(count).fill(undefined)
  }
}

function simpleOf(short: number): boolean | null {
  if (short === 20 || short === 21) return short === 21
  if (short === 22) return null
  throw new MalformedCborError()
}

export class MalformedCborError extends Error {}
