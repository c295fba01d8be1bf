import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { AttemptLostError, TooManyRetriesError } from '../chat/retries.ts'
import type { AccountRef } from '../db/account-ref.ts'
import { type ErrorCode, ServiceError } from '../errors.ts'
import type { Account } from '../ledger/accounts.ts'
import { NoBalanceError } from '../ledger/refusals.ts'
import { goneSignal } from './gone.ts'
import { UploadCutError } from './read-body.ts'
import { type Sleep, SlowRefusals, sleepUntilGone } from './slow-refusals.ts'
import { RateLimitedError, TokenBuckets } from './token-buckets.ts'
import { isLarge } from './unread-bodies.ts'

export type UnpaidOptions = {
  readonly findAccount: (account: AccountRef) => Promise<Account | undefined>
  /** Milliseconds. */
  readonly now: () => number
  /** Told of each connection on which a request was paid for. */
  readonly onPaid?: (socket: Socket) => void
  readonly sleep?: Sleep
  readonly slowRefusals?: SlowRefusals
}

type Bearer = AccountRef & { readonly keyId: string }
type Exchange = {
  readonly incoming: IncomingMessage
  readonly outgoing: ServerResponse
  /** Of the client, see `Visitor`. */
  readonly network: string
}

/** A request of which it is not known yet whether somebody pays for it. */
export type UndecidedRequest = {
  /**
   * Call it before the body of a completion or quote is read. When the key had a refusal within ten seconds, and the body is large, the
   * balance is looked up first. Retries are always read: their answer may be paid for already.
   * @throws {NoBalanceError}
   */
  mayRead(): Promise<void>
  /** Something is held for it. */
  paid(): void
  /** It was refused, or its client left before anything was held. */
  refused(error: unknown): void
}

const perSecond = 50
const ofKey = { burstMax: 600, perSecond }
/** In the order of the table in docs/decisions/0013-rate-limits-for-unpaid-requests.md. */
export const unpaidRates = {
  ofKey,
  ofAccount: { burstMax: 3 * ofKey.burstMax, perSecond: 3 * perSecond },
  ofNetwork: { burstMax: 6 * ofKey.burstMax, perSecond: 6 * perSecond },
  strangers: ofKey,
  quotes: ofKey,
} as const
/** A page of the dashboard is a few dozen files, and many people share an address. */
const visitsBurstMax = 2_000
/** A refused body is read and parsed: so many bytes of it count as one more request. */
const bytesPerToken = 64 * 1024
const waitMsMax = 1_000

// Refusals that say nothing about the client: the service is short of something, or the request helps itself by waiting.
const uncounted: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'in_flight_cap',
  'overloaded',
  'settlement_delayed',
  'ledger_frozen',
  'upstream_error',
  'upstream_timeout',
  'internal_error',
])

/**
 * Refused requests, and those left before anything is held, cost their sender nothing and everybody else time. Above a rate per key
 * they take turns: each waits, unread, for the next token. When that would take longer than a second, it is refused, slowly (see
 * `SlowRefusals`). Requests that are paid for cost no token.
 *
 * An account with many keys has a rate of its own, and so has a network with many accounts. Those rates delay only keys that had a
 * refusal themselves within ten seconds: no key can stop another one, also not behind one address.
 */
export class UnpaidRequests {
  readonly #findAccount: UnpaidOptions['findAccount']
  readonly #onPaid: (socket: Socket) => void
  readonly #sleep: Sleep
  readonly #slowRefusals: SlowRefusals
  readonly #ofKey: TokenBuckets
  readonly #ofAccount: TokenBuckets
  readonly #ofNetwork: TokenBuckets
  readonly #lately: TokenBuckets
  readonly #strangers: TokenBuckets
  readonly #quotes: TokenBuckets
  readonly #visits: TokenBuckets

  constructor(options: UnpaidOptions) {
    const { now, findAccount, sleep = sleepUntilGone, slowRefusals = new SlowRefusals({ sleep }) } = options
    this.#findAccount = findAccount
    this.#onPaid = options.onPaid ?? (() => {})
    this.#sleep = sleep
    this.#slowRefusals = slowRefusals
    this.#ofKey = new TokenBuckets({ ...unpaidRates.ofKey, now })
    this.#ofAccount = new TokenBuckets({ ...unpaidRates.ofAccount, now })
    this.#ofNetwork = new TokenBuckets({ ...unpaidRates.ofNetwork, now })
    this.#lately = new TokenBuckets({ burstMax: 1, perSecond: 0.1, now })
    this.#strangers = new TokenBuckets({ ...unpaidRates.strangers, now })
    this.#quotes = new TokenBuckets({ ...unpaidRates.quotes, now })
    this.#visits = new TokenBuckets({ burstMax: visitsBurstMax, perSecond, now })
  }

  /** Call it before the body is read. @throws {TooManyRefusedError} */
  async admit(bearer: Bearer, exchange: Exchange): Promise<UndecidedRequest> {
    const { keyId, accountId } = bearer
    const { incoming, outgoing, network } = exchange
    const reserved = this.#exhausted(bearer, network)
    if (reserved !== undefined) await this.#wait(reserved, bearer, exchange, () => new TooManyRefusedError())
    const { socket } = incoming
    const readBefore = socket.bytesRead
    const giveBack = () => reserved?.buckets.giveBack(reserved.name)
    const isSuspect = !this.#lately.has(keyId) && isLarge(incoming) && !isRetry(incoming)
    return {
      mayRead: () => (isSuspect ? this.#requireMoney(bearer) : Promise.resolve()),
      paid: () => {
        giveBack()
        this.#onPaid(socket)
      },
      refused: (error) => {
        giveBack()
        if (!isCounted(error, outgoing)) return
        const tokens = 1 + Math.floor((socket.bytesRead - readBefore) / bytesPerToken)
        this.#ofKey.spend(keyId, tokens)
        this.#ofAccount.spend(accountId, tokens)
        this.#ofNetwork.spend(network, tokens)
        this.#lately.spend(keyId)
      },
    }
  }

  /** Work that nobody pays for, such as reading the log. @throws {TooManyRefusedError} */
  async during<Result>(
    bearer: Bearer,
    exchange: Exchange,
    work: (request: UndecidedRequest) => Promise<Result>,
  ): Promise<Result> {
    const request = await this.admit(bearer, exchange)
    try {
      const result = await work(request)
      request.paid()
      return result
    } catch (error) {
      request.refused(error)
      throw error
    }
  }

  /** Nobody pays for a quote, also when it is answered. @throws {TooManyRefusedError} @throws {TooManyQuotesError} */
  async duringQuote<Result>(bearer: Bearer, exchange: Exchange, work: () => Promise<Result>): Promise<Result> {
    return this.during(bearer, exchange, async (request) => {
      const quotes = { buckets: this.#quotes, name: bearer.keyId }
      await this.#wait(quotes, bearer, exchange, () => new TooManyQuotesError())
      await request.mayRead()
      return work()
    })
  }

  /**
   * Call it before a refusal is sent to a caller that nothing else slows down: one without a good key or session, or above another
   * rate. Only refusals wait: the look-up of a good key behind the same address is not delayed.
   */
  async beforeRefusal(error: unknown, { outgoing, network }: Omit<Exchange, 'incoming'>): Promise<void> {
    if (error instanceof RateLimitedError) await this.#slowRefusals.wait([error.caller, network], outgoing)
    else if (isCounted(error, outgoing) && this.#strangers.reserve(network, 0) === undefined) {
      await this.#slowRefusals.wait([network], outgoing)
    }
  }

  async #requireMoney(bearer: Bearer): Promise<void> {
    const account = await this.#findAccount(bearer)
    if (account !== undefined && account.spendable <= 0n) throw new NoBalanceError(account)
  }

  /**
   * Call it before a page or file that anybody may have: each costs a millisecond of CPU time or more, and nobody pays for it.
   * @throws {RateLimitedError} slowly
   */
  async admitVisitor({ outgoing, network }: Omit<Exchange, 'incoming'>): Promise<void> {
    if (this.#visits.reserve(network, 0) !== undefined) return
    await this.#slowRefusals.wait([network], outgoing)
    throw new RateLimitedError(network, perSecond, waitMsMax)
  }

  /** The bucket that has no token left for the key. */
  #exhausted({ keyId, accountId }: Bearer, network: string): Reserved | undefined {
    if (!this.#ofKey.has(keyId)) return { buckets: this.#ofKey, name: keyId }
    if (this.#lately.has(keyId)) return undefined
    if (!this.#ofAccount.has(accountId)) return { buckets: this.#ofAccount, name: accountId }
    if (!this.#ofNetwork.has(network)) return { buckets: this.#ofNetwork, name: network }
    return undefined
  }

  async #wait(
    { buckets, name }: Reserved,
    { accountId }: Bearer,
    { outgoing, network }: Exchange,
    refusal: () => ServiceError,
  ): Promise<void> {
    const waitMs = buckets.reserve(name, waitMsMax)
    if (waitMs === 0) return
    if (waitMs === undefined) {
      await this.#slowRefusals.wait([accountId, network], outgoing)
      throw refusal()
    }
    // Cut short when the client leaves: then there is nobody to be slowed down, and reading on finds that out.
    await this.#sleep(waitMs, goneSignal(outgoing)).catch(() => {})
  }
}

type Reserved = { readonly buckets: TokenBuckets; readonly name: string }

function isRetry({ headers }: IncomingMessage): boolean {
  return headers['idempotency-key'] !== undefined || Number(headers['x-stainless-retry-count']) > 0
}

function isCounted(error: unknown, outgoing: ServerResponse): boolean {
  if (outgoing.destroyed || error instanceof UploadCutError) return true
  if (error instanceof TooManyRetriesError || error instanceof AttemptLostError) return true
  return error instanceof ServiceError && !uncounted.has(error.code)
}

export class TooManyRefusedError extends ServiceError {
  readonly code = 'rate_limited'
  constructor() {
    super(
      `More than ${perSecond} requests per second with this API key were refused or cancelled before output. Fix the cause of the refusals, or send fewer.`,
      { retryAfterMs: waitMsMax },
    )
  }
}

export class TooManyQuotesError extends ServiceError {
  readonly code = 'rate_limited'
  constructor() {
    super(`More than ${perSecond} quotes per second were requested with this API key. Send fewer.`, {
      retryAfterMs: waitMsMax,
    })
  }
}
