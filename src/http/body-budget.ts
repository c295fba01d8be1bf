import type { ServiceError } from '../errors.ts'
import { Shares } from '../shares.ts'

const smallBytesDefault = 64 * 1024
const bodiesPerAccountMin = 16

export type BodyBudgetOptions = {
  /** Of all bodies that are being read. */
  readonly bytesMax: number
  /** An account may send so many however little its share is: one body of the largest size. */
  readonly accountBytesMin?: number
  /** Bodies that are being read. */
  readonly bodiesMax?: number
  readonly smallBytesMax?: number
}

/**
 * The bodies that are being read now and their bytes, with limits: what is read before a hold costs its sender nothing. Small bodies are
 * read whatever others send, or a few that send much, and slowly, would shut everybody out; the connections bound them.
 */
export class BodyBudget {
  readonly #bytes: Shares
  readonly #bodies: Shares
  readonly #smallBytesMax: number

  constructor({ bytesMax, accountBytesMin = bytesMax, bodiesMax = 1_000, smallBytesMax }: BodyBudgetOptions) {
    this.#bytes = new Shares({ what: 'bytes of request bodies being sent', capacity: bytesMax, floor: accountBytesMin })
    this.#bodies = new Shares({ what: 'request bodies being sent', capacity: bodiesMax, floor: bodiesPerAccountMin })
    this.#smallBytesMax = smallBytesMax ?? smallBytesDefault
  }

  get bytes(): number {
    return this.#bytes.used
  }

  /** @throws when the account sends too many at once. */
  open(account: string): OpenBody {
    this.#bodies.acquire(account)
    return new OpenBody(account, this.#bytes, this.#smallBytesMax, () => this.#bodies.release(account))
  }
}

/** What has arrived of one body. */
export class OpenBody {
  readonly #account: string
  readonly #shares: Shares
  readonly #smallBytesMax: number
  readonly #onClose: () => void
  #isOpen = true
  bytes = 0

  constructor(account: string, shares: Shares, smallBytesMax: number, onClose: () => void) {
    this.#account = account
    this.#shares = shares
    this.#smallBytesMax = smallBytesMax
    this.#onClose = onClose
  }

  /** Counts what has arrived; why the rest must not be read when there is no room for it. */
  add(bytes: number): ServiceError | undefined {
    this.bytes += bytes
    const refusal = this.bytes > this.#smallBytesMax ? this.#shares.refusal(this.#account, bytes) : undefined
    this.#shares.add(this.#account, bytes)
    return refusal
  }

  /** Gives everything back, once. */
  close(): void {
    if (!this.#isOpen) return
    this.#isOpen = false
    this.#shares.release(this.#account, this.bytes)
    this.#onClose()
  }
}
