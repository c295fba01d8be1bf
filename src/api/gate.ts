import type { AccountRef } from '../db/account-ref.ts'
import type { Connection, Database } from '../db/database.ts'
import { ServiceError } from '../errors.ts'
import { TokenBuckets } from '../fairness/token-buckets.ts'
import { authenticate } from '../http/authenticate.ts'
import { checkSameOrigin, readSessionToken, type Site } from '../http/origin.ts'
import { UnknownUrlError } from '../http/unknown-url.ts'
import type { Visitor } from '../http/visitor.ts'
import { managementPrefix } from '../identity/api-key-format.ts'
import type { KeyFinder } from '../identity/key-finder.ts'
import { findManagementKey, grants, type ManagementBearer } from '../identity/management-keys.ts'
import { type Role, reaches } from '../identity/roles.ts'
import { findSession, type Session } from '../identity/sessions.ts'
import type { Contract } from '../openapi/contract.ts'

/** The authenticated caller of a request. */
export type Caller = {
  readonly visitor: Visitor
  /** The account whose data is requested; undefined on public routes without a session. */
  readonly owner: AccountRef | undefined
  readonly session: Session | undefined
  readonly managementKey: ManagementBearer | undefined
  /** The person whose API keys the caller may see and change; undefined: all of the account. */
  readonly keysMadeBy: string | undefined
  /** A command on the operator's machine, which acts for any account. */
  readonly asOperator?: boolean
}

/** What routes need of the gate in front of them: `Gate` on the public port, `OperatorGate` on the control port. */
export type GateOfRoutes = Pick<Gate, 'admit' | 'readmit' | 'countAnswer'>

export type GateOptions = {
  readonly database: Database
  readonly keys: KeyFinder
  readonly site: Site
  readonly isSandbox: boolean
  readonly isOperator: (session: Session) => Promise<boolean>
  /** Milliseconds. */
  readonly now: () => number
}

/** The account that a page of the dashboard shows. */
export const accountHeader = 'x-router-account'
/** The signed-in person that a dashboard page shows, or `none` before a sign-in. */
const personHeader = 'x-router-person'

const limitedSessionsMax = 10_000
const answerLengthPerToken = 64 * 1024

/** In the order of the table in docs/limits.md. */
export const apiRates = {
  ofAccount: { burstMax: 300, perSecond: 30 },
  // A change locks the account in a transaction. Five per second are more than a person makes.
  changesOfAccount: { burstMax: 100, perSecond: 5 },
  heavyOfKey: { burstMax: 100, perSecond: 10 },
  ofManagementKey: { burstMax: 200, perSecond: 20 },
  // Twice the rate of a key, so that one busy key leaves its owner's dashboard usable.
  heavyOfAccount: { burstMax: 200, perSecond: 20 },
  ofNetwork: { burstMax: 300, perSecond: 30 },
  signIns: { burstMax: 60, perSecond: 1 },
} as const

/**
 * Authorizes requests. This is the only place that compares roles and scopes with what a contract needs. Rates are limited per account for
 * sessions (all sessions of an account share them), otherwise per network. Requests with a valid API key are limited only on routes that
 * read many rows: programs may ask for the cost of each of their requests. Management keys have a rate per key.
 */
export class Gate {
  readonly #options: GateOptions
  readonly #ofAccount: TokenBuckets
  readonly #changesOfAccount: TokenBuckets
  readonly #heavyOfKey: TokenBuckets
  readonly #ofManagementKey: TokenBuckets
  readonly #heavyOfAccount: TokenBuckets
  readonly #ofNetwork: TokenBuckets
  readonly #signIns: TokenBuckets
  /** Rate-limited accounts by session token. Further refusals need no lookup. */
  readonly #limitedSessions = new Map<string, string>()

  constructor(options: GateOptions) {
    this.#options = options
    const { now } = options
    this.#ofAccount = new TokenBuckets({ ...apiRates.ofAccount, now })
    this.#changesOfAccount = new TokenBuckets({ ...apiRates.changesOfAccount, now })
    this.#heavyOfKey = new TokenBuckets({ ...apiRates.heavyOfKey, now })
    this.#ofManagementKey = new TokenBuckets({ ...apiRates.ofManagementKey, now })
    this.#heavyOfAccount = new TokenBuckets({ ...apiRates.heavyOfAccount, now })
    this.#ofNetwork = new TokenBuckets({ ...apiRates.ofNetwork, now })
    this.#signIns = new TokenBuckets({ ...apiRates.signIns, now })
  }

  async admit(contract: Contract, visitor: Visitor): Promise<Caller> {
    const { access, method, path, isHeavy, isForPrograms } = contract
    const { keys, site } = this.#options
    if (access === 'sandbox' && !this.#options.isSandbox) throw new NotInSandboxError()
    if (access === 'operator') return this.#admitOperator(visitor, method, path)
    const authorization = visitor.header('authorization')
    if (access !== 'public' && access !== 'key') {
      const secret = managementSecretOf(authorization)
      if (secret !== undefined) return this.#admitManagementKey(contract, visitor, secret)
    }
    if (access === 'key' || (access === 'key or session' && authorization !== undefined)) {
      const bearer = await authenticate(keys, visitor)
      // No hold follows that would notice a key that was just revoked or rotated.
      await keys.currentOptions(bearer)
      if (isHeavy) {
        this.#heavyOfKey.take(bearer.keyId)
        this.#heavyOfAccount.take(bearer.accountId)
      }
      return { visitor, owner: bearer, session: undefined, managementKey: undefined, keysMadeBy: undefined }
    }
    this.#refuseLimited(visitor)
    const session = await this.#findSession(visitor)
    if (session === undefined && access !== 'public') {
      this.#ofNetwork.take(visitor.network)
      throw new SessionRequiredError(contract, authorization !== undefined)
    }
    if (path.startsWith('/api/auth/')) this.#signIns.take(visitor.network)
    else if (session === undefined) this.#ofNetwork.take(visitor.network)
    else this.#countSession(contract, visitor, session)
    // Browsers send an Origin with everything but GET; programs send none.
    const isProgram = isForPrograms === true && visitor.header('origin') === undefined
    if (method !== 'GET' && !isProgram) checkSameOrigin(site, visitor)
    if (method !== 'GET') {
      // Signing in and out works in any window.
      if (session !== undefined && access !== 'public') requirePerson(session, visitor)
      requireAccount(contract, session, visitor.header(accountHeader))
    }
    requireRole(contract, session)
    return callerOf(visitor, session)
  }

  /**
   * Authorizes an admitted caller again, without counting: its session, role or management key may have ended since, for example while
   * its body was read. Under the account's lock, pass the connection of the transaction.
   */
  async readmit(contract: Contract, caller: Caller, connection: Connection = this.#options.database): Promise<Caller> {
    const { visitor } = caller
    if (caller.managementKey !== undefined) {
      const secret = managementSecretOf(visitor.header('authorization'))!
      return callerOfManagementKey(contract, visitor, await findManagementKey(connection, secret))
    }
    if (caller.session === undefined) return caller
    const session = await this.#findSession(visitor, connection)
    if (session === undefined && contract.access !== 'public') throw new SessionRequiredError(contract, false)
    requireAccount(contract, session, caller.session.accountId)
    requireRole(contract, session)
    return callerOf(visitor, session)
  }

  /**
   * Call it with each answer to a heavy request, as JSON, and with the part of an export that is made in one piece. Parts of 64 KiB
   * count as further requests: making an answer of several megabytes takes as long as hundreds of short ones, and blocks the event loop.
   */
  countAnswer({ accountId }: AccountRef, json: string): void {
    this.#heavyOfAccount.spend(accountId, Math.floor(json.length / answerLengthPerToken))
  }

  /** Whether the visitor may use the operator's pages. */
  async isOperator(visitor: Visitor): Promise<boolean> {
    return (await this.#findOperator(visitor)) !== undefined
  }

  async #admitManagementKey(contract: Contract, visitor: Visitor, secret: string): Promise<Caller> {
    const { method, isHeavy } = contract
    const bearer = await findManagementKey(this.#options.database, secret)
    this.#ofManagementKey.take(bearer.managementKeyId)
    if (method !== 'GET') this.#changesOfAccount.take(bearer.accountId)
    if (isHeavy) this.#heavyOfAccount.take(bearer.accountId)
    return callerOfManagementKey(contract, visitor, bearer)
  }

  #countSession({ method, isChat, isHeavy }: Contract, visitor: Visitor, { accountId }: Session): void {
    if (!this.#ofAccount.has(accountId)) this.#rememberLimited(visitor, accountId)
    this.#ofAccount.take(accountId)
    // The dashboard requests quotes while the user types.
    if (method !== 'GET' && isChat !== true) this.#changesOfAccount.take(accountId)
    if (isHeavy) this.#heavyOfAccount.take(accountId)
  }

  #rememberLimited(visitor: Visitor, accountId: string): void {
    const token = readSessionToken(this.#options.site, visitor)!
    const [oldest] = this.#limitedSessions.keys()
    if (oldest !== undefined && this.#limitedSessions.size >= limitedSessionsMax) this.#limitedSessions.delete(oldest)
    this.#limitedSessions.set(token, accountId)
  }

  /** Refuses a session that is still above its rate, without a lookup. */
  #refuseLimited(visitor: Visitor): void {
    const token = readSessionToken(this.#options.site, visitor) ?? ''
    const accountId = this.#limitedSessions.get(token)
    if (accountId === undefined) return
    if (this.#ofAccount.has(accountId)) this.#limitedSessions.delete(token)
    else this.#ofAccount.take(accountId)
  }

  /** Others get the same answer as for an unknown URL. */
  async #admitOperator(visitor: Visitor, method: string, path: string): Promise<Caller> {
    const session = await this.#findOperator(visitor)
    if (session === undefined) throw new UnknownUrlError(method, path)
    this.#heavyOfAccount.take(session.accountId)
    return callerOf(visitor, session)
  }

  async #findOperator(visitor: Visitor): Promise<Session | undefined> {
    if (readSessionToken(this.#options.site, visitor) === undefined) return undefined
    this.#ofNetwork.take(visitor.network)
    const session = await this.#findSession(visitor)
    return session !== undefined && (await this.#options.isOperator(session)) ? session : undefined
  }

  async #findSession(visitor: Visitor, connection: Connection = this.#options.database): Promise<Session | undefined> {
    const token = readSessionToken(this.#options.site, visitor)
    return token === undefined ? undefined : findSession(connection, token)
  }
}

/** All windows of a browser share one session. After a switch in one of them, the others must not change the new account. */
function requireAccount(
  { access, isForPerson }: Contract,
  session: Session | undefined,
  shown: string | undefined,
): void {
  if (session === undefined || shown === undefined || access === 'public' || isForPerson) return
  if (session.accountId !== shown)
    throw new ServiceError(
      'account_switched',
      'You switched to another account in another window. Nothing was changed. Reload the page.',
    )
}

/** After a sign-in of another person in one window, the others must change neither that person's sign-ins nor their accounts. */
export function requirePerson({ personId }: Session, visitor: Visitor): void {
  const shown = visitor.header(personHeader)
  if (shown !== undefined && shown !== personId)
    throw new ServiceError(
      'account_switched',
      'Another person signed in in another window. Nothing was changed. Reload the page.',
    )
}

/**
 * A sign-in on a page that shows a person must be of that person: "Confirm it is you" would otherwise open another account, and the
 * form on the page would be lost. Call it before the sign-in changes anything.
 */
export function requireShownPerson(personId: string, visitor: Visitor): void {
  const shown = visitor.header(personHeader)
  if (shown !== undefined && shown !== 'none' && shown !== personId)
    throw new ServiceError(
      'account_switched',
      'This signs in another person than the one of this page. Nothing was changed. Use a wallet or passkey of this account, or sign out first.',
    )
}

function requireRole({ role }: Contract, session: Session | undefined): void {
  if (session !== undefined && role !== undefined && !reaches(session.role, role)) {
    throw new RoleRequiredError(role, session)
  }
}

function callerOf(visitor: Visitor, session: Session | undefined): Caller {
  const seesAllKeys = session === undefined || reaches(session.role, 'admin')
  return {
    visitor,
    owner: session,
    session,
    managementKey: undefined,
    keysMadeBy: seesAllKeys ? undefined : session.personId,
  }
}

function callerOfManagementKey({ scope }: Contract, visitor: Visitor, bearer: ManagementBearer): Caller {
  if (scope === undefined || !grants(bearer.scopes, scope))
    throw new ServiceError(
      'scope_required',
      scope === undefined
        ? 'Management keys cannot do this. Sign in to the dashboard. Nothing was changed.'
        : `This management key does not have the scope ${scope}. Add it in Settings, or use another key. Nothing was changed.`,
    )
  return { visitor, owner: bearer, session: undefined, managementKey: bearer, keysMadeBy: undefined }
}

function managementSecretOf(authorization: string | undefined): string | undefined {
  const [scheme, secret, ...rest] = authorization?.trim().split(/\s+/) ?? []
  const isBearer = scheme?.toLowerCase() === 'bearer' && rest.length === 0
  return isBearer && secret?.startsWith(managementPrefix) ? secret : undefined
}

/** Throws unless the person signed in recently. */
export function requireRecentSignIn({ isRecent }: Session): void {
  if (!isRecent)
    throw new ServiceError(
      'recent_sign_in_required',
      'This needs a sign-in within the last 15 minutes. Sign in again, then repeat it. Nothing was changed.',
    )
}

export class SessionRequiredError extends ServiceError {
  constructor({ access, scope }: Contract, withKey: boolean) {
    super(
      'session_required',
      withKey
        ? `This is part of the dashboard and needs a session${scope === undefined ? '' : ` or a management key with the scope ${scope}`}. An API key is not enough; sign in.`
        : access === 'key or session'
          ? 'The request has no API key and no session. Send "Authorization: Bearer penny_…", or sign in.'
          : 'You are not signed in, or your session has ended. Sign in and try again.',
    )
  }
}

export class RoleRequiredError extends ServiceError {
  readonly needed: Role
  readonly session: Session
  constructor(needed: Role, session: Session) {
    const who =
      needed === 'owner' ? 'owners' : needed === 'admin' ? 'owners and admins' : 'owners, admins and developers'
    super(
      'role_required',
      `Only ${who} of the account may do this. Your role in this account is ${session.role}. Ask an owner. Nothing was changed.`,
    )
    this.needed = needed
    this.session = session
  }
}

/** Sandbox routes do not exist in production. */
export class NotInSandboxError extends ServiceError {
  constructor() {
    super('unknown_url', 'This exists only in the sandbox.')
  }
}
