import type { ServiceError } from '../errors.ts'
import { Shares } from '../fairness/shares.ts'
import { ParsingTurns } from './parsing-turns.ts'

const smallBytesDefault = 64 * 1024
const bodiesPerAccountMin = 16

export type BodyBudgetOptions = {
  /** Buffered bytes of all bodies together. */
  readonly bytesMax: number
  /** An account may always buffer this much, whatever its share: one body of the largest size. */
  readonly accountBytesMin?: number
  /** Concurrent bodies. */
  readonly bodiesMax?: number
  readonly smallBytesMax?: number
}

/**
 * Limits the bodies that are being read and their bytes, because a sender pays nothing before the hold. Small bodies are exempt:
 * otherwise a few large, slow senders could lock out everyone else. Small ones are bounded by the number of connections.
 */
export class BodyBudget {
  readonly #bytes: Shares
  readonly #bodies: Shares
  readonly #turns = new ParsingTurns()
  readonly #smallBytesMax: number

  constructor({ bytesMax, accountBytesMin = bytesMax, bodiesMax = 1_000, smallBytesMax }: BodyBudgetOptions) {
    this.#bytes = new Shares({ what: 'bytes of request bodies being sent', capacity: bytesMax, floor: accountBytesMin })
    this.#bodies = new Shares({ what: 'request bodies being sent', capacity: bodiesMax, floor: bodiesPerAccountMin })
    this.#smallBytesMax = smallBytesMax ?? smallBytesDefault
  }

  get bytes(): number {
    return this.#bytes.used
  }

  /** @throws when the account sends too many bodies concurrently. */
  open(account: string): OpenBody {
    this.#bodies.acquire(account)
    return new OpenBody({
      account,
      shares: this.#bytes,
      turns: this.#turns,
      smallBytesMax: this.#smallBytesMax,
      onClose: () => this.#bodies.release(account),
    })
  }
}

type OpenBodyOptions = {
  readonly account: string
  readonly shares: Shares
  readonly turns: ParsingTurns
  readonly smallBytesMax: number
  readonly onClose: () => void
}

/** One body while it is being read. */
export class OpenBody {
  readonly #options: OpenBodyOptions
  #isOpen = true
  bytes = 0

  constructor(options: OpenBodyOptions) {
    this.#options = options
  }

  /** Counts received bytes. Returns an error when the rest must not be read, because the budget is exhausted. */
  add(bytes: number): ServiceError | undefined {
    const { account, shares } = this.#options
    this.bytes += bytes
    const refusal = this.#isSmall ? undefined : shares.refusal(account, bytes)
    shares.add(account, bytes)
    return refusal
  }

  /** Resolves when the body may be parsed; undefined: immediately. */
  turn(): Promise<void> | undefined {
    const { account, turns } = this.#options
    return this.#isSmall ? undefined : turns.wait(account)
  }

  /** Returns its bytes to the budget. Idempotent. */
  close(): void {
    if (!this.#isOpen) return
    this.#isOpen = false
    const { account, shares, onClose } = this.#options
    shares.release(account, this.bytes)
    onClose()
  }

  get #isSmall(): boolean {
    return this.bytes <= this.#options.smallBytesMax
  }
}
