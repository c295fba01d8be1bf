import type { ServiceError } from '../errors.ts'
import { Shares } from '../fairness/shares.ts'
import { ParsingTurns } from './parsing-turns.ts'

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

  /** @throws when the account sends too many at once. */
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

/** What has arrived of one body. */
export class OpenBody {
  readonly #options: OpenBodyOptions
  #isOpen = true
  bytes = 0

  constructor(options: OpenBodyOptions) {
    this.#options = options
  }

  /** Counts what has arrived; why the rest must not be read when there is no room for it. */
  add(bytes: number): ServiceError | undefined {
    const { account, shares } = this.#options
    this.bytes += bytes
    const refusal = this.#isSmall ? undefined : shares.refusal(account, bytes)
    shares.add(account, bytes)
    return refusal
  }

  /** When the body may be parsed; undefined: at once. */
  turn(): Promise<void> | undefined {
    const { account, turns } = this.#options
    return this.#isSmall ? undefined : turns.wait(account)
  }

  /** Gives everything back, once. */
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
