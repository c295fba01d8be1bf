import type { AccountRef } from '../../account-ref.ts'
import type { Database } from '../../db/database.ts'
import { ServiceError } from '../../errors.ts'
import type { KeyFinder } from '../../identity/api-keys.ts'
import { findSession, type Session } from '../../identity/sessions.ts'
import { authenticate } from '../authenticate.ts'
import { checkSameOrigin, readSessionToken, type Site } from '../site.ts'
import { TokenBuckets } from '../token-buckets.ts'
import type { Visitor } from '../visitor.ts'
import type { Contract } from './contract.ts'

/** Whom a request comes from, as far as it proved that. */
export type Caller = {
  readonly visitor: Visitor
  /** Whose data it is about; undefined on public routes when nobody is signed in. */
  readonly owner: AccountRef | undefined
  readonly session: Session | undefined
}

export type GateOptions = {
  readonly database: Database
  readonly keys: KeyFinder
  readonly site: Site
  readonly isSandbox: boolean
  /** Milliseconds. */
  readonly now: () => number
}

/**
 * Lets in whom a route is for. Rates are limited per account where there is a session (all its sessions share them), else per
 * network. A request with a good API key is limited only on routes that read many rows: a program may ask what each of its
 * requests cost.
 */
export class Gate {
  readonly #options: GateOptions
  readonly #ofAccount: TokenBuckets
  readonly #heavyOfKey: TokenBuckets
  readonly #heavyOfAccount: TokenBuckets
  readonly #ofNetwork: TokenBuckets
  readonly #signIns: TokenBuckets

  constructor(options: GateOptions) {
    this.#options = options
    const { now } = options
    this.#ofAccount = new TokenBuckets({ burstMax: 300, perSecond: 30, now })
    this.#heavyOfKey = new TokenBuckets({ burstMax: 100, perSecond: 10, now })
    // Twice as much as for a key: one busy key leaves its owner's dashboard usable.
    this.#heavyOfAccount = new TokenBuckets({ burstMax: 200, perSecond: 20, now })
    this.#ofNetwork = new TokenBuckets({ burstMax: 300, perSecond: 30, now })
    this.#signIns = new TokenBuckets({ burstMax: 60, perSecond: 1, now })
  }

  async admit({ access, method, path, isHeavy }: Contract, visitor: Visitor): Promise<Caller> {
    const { keys, site } = this.#options
    if (access === 'sandbox' && !this.#options.isSandbox) throw new NotInSandboxError()
    const authorization = visitor.header('authorization')
    if (access === 'key' || (access === 'key or session' && authorization !== undefined)) {
      const bearer = await authenticate(keys, authorization)
      if (isHeavy) {
        this.#heavyOfKey.take(bearer.keyId)
        this.#heavyOfAccount.take(bearer.accountId)
      }
      return { visitor, owner: bearer, session: undefined }
    }
    const session = await this.#findSession(visitor)
    if (session === undefined && access !== 'public') {
      this.#ofNetwork.take(visitor.network)
      throw new SessionRequiredError(authorization !== undefined, access === 'key or session')
    }
    if (path.startsWith('/api/auth/')) this.#signIns.take(visitor.network)
    else if (session === undefined) this.#ofNetwork.take(visitor.network)
    else {
      this.#ofAccount.take(session.accountId)
      if (isHeavy) this.#heavyOfAccount.take(session.accountId)
    }
    if (method !== 'GET') checkSameOrigin(site, visitor)
    return { visitor, owner: session, session }
  }

  async #findSession(visitor: Visitor): Promise<Session | undefined> {
    const token = readSessionToken(this.#options.site, visitor)
    return token === undefined ? undefined : findSession(this.#options.database, token)
  }
}

/** Throws unless the session was opened lately. */
export function requireRecentSignIn({ isRecent }: Session): void {
  if (!isRecent) throw new RecentSignInRequiredError()
}

export class SessionRequiredError extends ServiceError {
  readonly code = 'session_required'
  constructor(withKey: boolean, keyWouldDo: boolean) {
    super(
      withKey
        ? 'This is part of the dashboard: an API key does not open it. Sign in instead.'
        : keyWouldDo
          ? 'No API key was sent, and nobody is signed in. Send "Authorization: Bearer penny_…", or sign in.'
          : 'You are not signed in, or your session has ended. Sign in and try again.',
    )
  }
}

export class RecentSignInRequiredError extends ServiceError {
  readonly code = 'recent_sign_in_required'
  constructor() {
    super('This needs a sign-in of the last 15 minutes. Sign in again, then repeat it. Nothing happened.')
  }
}

/** What belongs to the sandbox is not there at all where money is real. */
export class NotInSandboxError extends ServiceError {
  readonly code = 'unknown_url'
  constructor() {
    super('This is part of the sandbox; it does not exist here.')
  }
}
