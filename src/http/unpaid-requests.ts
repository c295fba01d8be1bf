import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { AnswerLostError } from '../chat/answer.ts'
import { TooManyRetriesError } from '../chat/retries.ts'
import type { AccountRef } from '../db/account-ref.ts'
import { type ErrorCode, ServiceError } from '../errors.ts'
import { ShareUsedUpError } from '../fairness/shares.ts'
import { RateLimitedError, TokenBuckets } from '../fairness/token-buckets.ts'
import type { Account } from '../ledger/accounts.ts'
import { NoBalanceError } from '../ledger/refusals.ts'
import { RefusedByModelError } from '../providers/upstream-errors.ts'
import { disconnectSignal } from './disconnect.ts'
import { UploadAbortedError } from './read-body.ts'
import { mayReplay, readRetryHeaders } from './retry-headers.ts'
import { type Sleep, SlowRefusals, sleepUntilAborted } from './slow-refusals.ts'
import { isLarge } from './unread-bodies.ts'

export type UnpaidOptions = {
  readonly findAccount: (account: AccountRef) => Promise<Account | undefined>
  /** Milliseconds. */
  readonly now: () => number
  /** Called for each connection on which a request was paid for. */
  readonly onPaid?: (socket: Socket) => void
  readonly sleep?: Sleep
  readonly slowRefusals?: SlowRefusals
}

type Bearer = AccountRef & { readonly keyId: string }
type Exchange = {
  readonly incoming: IncomingMessage
  readonly outgoing: ServerResponse
  /** See `Visitor`. */
  readonly network: string
}

/** A request before it is known whether it will be paid for. */
export type UndecidedRequest = {
  /**
   * Call it before reading the body of a completion or quote. If the body is large and the key had a refusal within ten seconds, this
   * checks the balance first. Retries always pass: their answer may already be paid for.
   * @throws {NoBalanceError}
   */
  mayRead(): Promise<void>
  /** Call it when the hold was placed. */
  paid(): void
  /** Call it when the request was refused, or the client disconnected before the hold. */
  refused(error: unknown): void
  /** Call it after `paid()` when the provider refused the customer's input: the hold costs nothing. */
  refusedByModel(error: ServiceError): void
}

const perSecond = 50
const ofKey = { burstMax: 600, perSecond }
/** In the order of the table in docs/limits.md. */
export const unpaidRates = {
  ofKey,
  ofAccount: { burstMax: 3 * ofKey.burstMax, perSecond: 3 * perSecond },
  ofNetwork: { burstMax: 6 * ofKey.burstMax, perSecond: 6 * perSecond },
  strangers: ofKey,
  quotes: ofKey,
  /** Of an account. A provider may block the operator for many prompts that violate its policy. */
  flagged: { burstMax: 60, perSecond: 1 },
} as const
/** A page of the dashboard is a few dozen files, and many people share an address. */
const visitsBurstMax = 2_000
/** Reading a refused body costs time too: this many bytes count as one more request. */
const bytesPerToken = 64 * 1024
const waitMsMax = 1_000

// These refusals are not the client's fault: the service lacks something, or the client only has to wait.
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
 * Limits the rate of requests that are refused or abandoned before a hold: they cost their sender nothing, but take time from others.
 * Above a rate per key, requests wait, unread, for the next token. If that takes longer than a second, they are refused with a delay
 * (see `SlowRefusals`). Paid requests cost no token.
 *
 * Accounts and networks have rates of their own. These delay only keys that had a refusal themselves within ten seconds: no key can
 * block another, even behind the same address.
 */
export class UnpaidRequests {
  readonly #findAccount: UnpaidOptions['findAccount']
  readonly #onPaid: (socket: Socket) => void
  readonly #sleep: Sleep
  readonly #slowRefusals: SlowRefusals
  readonly #ofKey: TokenBuckets
  readonly #ofAccount: TokenBuckets
  readonly #ofNetwork: TokenBuckets
  readonly #recentlyRefused: TokenBuckets
  readonly #unknownKeys: TokenBuckets
  readonly #free: TokenBuckets
  readonly #visits: TokenBuckets
  readonly #flagged: TokenBuckets

  constructor(options: UnpaidOptions) {
    const { now, findAccount, sleep = sleepUntilAborted, slowRefusals = new SlowRefusals({ sleep }) } = options
    this.#findAccount = findAccount
    this.#onPaid = options.onPaid ?? (() => {})
    this.#sleep = sleep
    this.#slowRefusals = slowRefusals
    this.#ofKey = new TokenBuckets({ ...unpaidRates.ofKey, now })
    this.#ofAccount = new TokenBuckets({ ...unpaidRates.ofAccount, now })
    this.#ofNetwork = new TokenBuckets({ ...unpaidRates.ofNetwork, now })
    this.#recentlyRefused = new TokenBuckets({ burstMax: 1, perSecond: 0.1, now })
    this.#unknownKeys = new TokenBuckets({ ...unpaidRates.strangers, now })
    this.#free = new TokenBuckets({ ...unpaidRates.quotes, now })
    this.#visits = new TokenBuckets({ burstMax: visitsBurstMax, perSecond, now })
    this.#flagged = new TokenBuckets({ ...unpaidRates.flagged, now })
  }

  /** Call it before reading the body. @throws `rate_limited` */
  async admit(bearer: Bearer, exchange: Exchange): Promise<UndecidedRequest> {
    const { keyId, accountId } = bearer
    const { incoming, outgoing, network } = exchange
    const reserved = this.#exhausted(bearer, network)
    const refusal = () =>
      reserved?.buckets === this.#flagged
        ? new TooManyFlaggedError()
        : new ServiceError(
            'rate_limited',
            `More than ${perSecond} requests per second of this API key, wallet or network were refused or cancelled before a hold. Fix the cause of the refusals, or send fewer.`,
            { retryAfterMs: waitMsMax },
          )
    if (reserved !== undefined) await this.#wait(reserved, bearer, exchange, refusal)
    const { socket } = incoming
    const readBefore = socket.bytesRead
    const giveBack = () => reserved?.buckets.giveBack(reserved.name)
    const spend = () => {
      const tokens = 1 + Math.floor((socket.bytesRead - readBefore) / bytesPerToken)
      this.#ofKey.spend(keyId, tokens)
      this.#ofAccount.spend(accountId, tokens)
      this.#ofNetwork.spend(network, tokens)
      this.#recentlyRefused.spend(keyId)
    }
    const checksBalanceFirst =
      !this.#recentlyRefused.has(keyId) && isLarge(incoming) && !mayReplay(readRetryHeaders(incoming))
    return {
      mayRead: async () => {
        const account = checksBalanceFirst ? await this.#findAccount(bearer) : undefined
        if (account !== undefined && account.spendable <= 0n) throw new NoBalanceError(account)
      },
      paid: () => {
        giveBack()
        this.#onPaid(socket)
      },
      refused: (error) => {
        giveBack()
        if (isCounted(error, outgoing)) spend()
      },
      refusedByModel: (error) => {
        spend()
        if (error instanceof RefusedByModelError && error.isFlagged) this.#flagged.spend(accountId)
      },
    }
  }

  /** For work that is never paid for, such as reading the log. @throws `rate_limited` */
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

  /**
   * Work that costs nothing also when it is answered: quotes, and the balance of a wallet. A body counts by its size.
   * @throws when the caller sent too many of them
   */
  async duringFree<Result>(
    bearer: Bearer,
    exchange: Exchange,
    work: (request: UndecidedRequest) => Promise<Result>,
  ): Promise<Result> {
    return this.during(bearer, exchange, async (request) => {
      const free = { buckets: this.#free, name: bearer.keyId }
      await this.#wait(
        free,
        bearer,
        exchange,
        () =>
          new ServiceError(
            'rate_limited',
            `More than ${perSecond} quotes or other free requests per second were sent with this API key or wallet, or from this network. Send fewer.`,
            { retryAfterMs: waitMsMax },
          ),
      )
      const { socket } = exchange.incoming
      const readBefore = socket.bytesRead
      const result = await work(request)
      this.#free.spend(bearer.keyId, Math.floor((socket.bytesRead - readBefore) / bytesPerToken))
      return result
    })
  }

  /**
   * Call it before refusing a caller that nothing else slows down: one without a valid key or session, or above another rate. Only
   * refusals wait: valid keys behind the same address are not delayed.
   */
  async beforeRefusal(error: unknown, { outgoing, network }: Omit<Exchange, 'incoming'>): Promise<void> {
    if (error instanceof RateLimitedError) await this.#slowRefusals.wait([error.caller, network], outgoing)
    else if (isCounted(error, outgoing) && this.#unknownKeys.reserve(network, 0) === undefined) {
      await this.#slowRefusals.wait([network], outgoing)
    }
  }

  /**
   * Call it before serving a public page or file: each costs at least a millisecond of CPU time.
   * @throws {RateLimitedError} after a delay
   */
  async admitVisitor({ outgoing, network }: Omit<Exchange, 'incoming'>): Promise<void> {
    if (this.#visits.reserve(network, 0) !== undefined) return
    await this.#slowRefusals.wait([network], outgoing)
    throw new RateLimitedError(network, perSecond, waitMsMax)
  }

  /** The first empty bucket that applies to the key. */
  #exhausted({ keyId, accountId }: Bearer, network: string): Reserved | undefined {
    if (!this.#flagged.has(accountId)) return { buckets: this.#flagged, name: accountId }
    if (!this.#ofKey.has(keyId)) return { buckets: this.#ofKey, name: keyId }
    if (this.#recentlyRefused.has(keyId)) return undefined
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
    // Ends early when the client disconnects. Reading the body then reports it.
    await this.#sleep(waitMs, disconnectSignal(outgoing)).catch(() => {})
  }
}

type Reserved = { readonly buckets: TokenBuckets; readonly name: string }

function isCounted(error: unknown, outgoing: ServerResponse): boolean {
  if (outgoing.destroyed || error instanceof UploadAbortedError) return true
  if (error instanceof TooManyRetriesError || error instanceof AnswerLostError) return true
  // The client only has to wait here too, but shares its code with rates.
  return error instanceof ServiceError && !uncounted.has(error.code) && !(error instanceof ShareUsedUpError)
}

export class TooManyFlaggedError extends ServiceError {
  constructor() {
    const { burstMax, perSecond: allowed } = unpaidRates.flagged
    super(
      'rate_limited',
      `More than ${burstMax} prompts of this account, and then ${allowed} per second, violated the policy of the model's provider. Check the input of your users before you send it.`,
      { retryAfterMs: waitMsMax },
    )
  }
}
