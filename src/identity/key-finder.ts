import { plainArray, textArray } from '../db/array-literal.ts'
import type { Database } from '../db/database.ts'
import { rowsOf } from '../db/rows.ts'
import { SharedRead } from '../db/shared-read.ts'
import { ServiceError } from '../errors.ts'
import { hashApiKey, whyMalformed } from './api-key-format.ts'
import { type KeyOptions, type OptionRow, readColumns, readOptions } from './key-options.ts'

/** Whose key a request carries, and what the key allows. */
export type Bearer = {
  readonly partition: number
  readonly accountId: string
  readonly keyId: string
  /** Hash of the secret that was sent. Left out when a session or a wallet uses the key. */
  readonly secretHash?: string
  readonly depositAddress: string | undefined
  /** Set for a wallet account, which pays over x402 and has no deposit address. */
  readonly x402Wallet: string | undefined
  /** Up to a second old. `KeyFinder.currentOptions` reads them from the database. */
  readonly options: KeyOptions
}

export type KeyFinderOptions = {
  readonly database: Database
  readonly now: () => number
  readonly cacheMs?: number
  readonly cachedMax?: number
}

/**
 * Finds the bearer of a key, with a cache of one second. A stale entry admits nothing: the ledger checks the key again, under lock,
 * when it places the hold, and the hold names the version of secret and options that were checked. Requests without a hold, and
 * refusals, call `currentOptions` first. Of refusals only unknown keys are cached, so a key that is enabled again works immediately.
 */
export class KeyFinder {
  readonly #options: Required<KeyFinderOptions>
  readonly #cache = new Map<string, { readonly found: Found; readonly untilMs: number }>()
  // Two reads: the second has the partition as a value, so that Citus asks only the worker that stores the account.
  readonly #secrets = new SharedRead((hashes) => this.#readSecrets(hashes))
  readonly #keys = new Map<number, SharedRead<KeyRow>>()

  constructor(options: KeyFinderOptions) {
    this.#options = { cacheMs: 1_000, cachedMax: 100_000, ...options }
  }

  /** Throws a 401 error when the key is malformed, unknown, revoked, disabled or expired. */
  async find(key: string): Promise<Bearer> {
    const problem = whyMalformed(key)
    if (problem !== undefined) throw new InvalidApiKeyError(problem)
    const cached = this.#cache.get(key)
    if (cached !== undefined && cached.untilMs > this.#options.now()) return admit(cached.found)
    const found = await this.#lookUp(hashApiKey(key).toString('hex'))
    if (typeof found === 'string' && found !== 'unknown') return admit(found)
    if (this.#cache.size >= this.#options.cachedMax) this.#cache.clear()
    this.#cache.set(key, { found, untilMs: this.#options.now() + this.#options.cacheMs })
    return admit(found)
  }

  /** Checks the key again, in the database: a change on any node applies to every later request. Throws as `find` does. */
  async currentOptions({ partition, keyId, secretHash }: Bearer): Promise<KeyOptions> {
    if (secretHash !== undefined) return admit(await this.#lookUp(secretHash)).options
    const row = await this.#keysOf(partition).find(keyId)
    if (row === undefined) throw new InvalidApiKeyError()
    return readOptions(row)
  }

  /** Call it when the secrets or options of a key have changed. */
  forget(keyId: string): void {
    for (const [key, { found }] of this.#cache) {
      if (typeof found !== 'string' && found.keyId === keyId) this.#cache.delete(key)
    }
  }

  async #lookUp(secretHash: string): Promise<Found> {
    const secret = await this.#secrets.find(secretHash)
    if (secret === undefined) return 'unknown'
    const { partition, accountId, keyId } = secret
    const row = await this.#keysOf(partition).find(keyId)
    if (row === undefined) return 'unknown'
    if (secret.rotated === true) return 'rotated'
    if (row.disabled) return 'disabled'
    if (row.revoked === true) return 'revoked'
    if (row.expired === true) return 'expired'
    const { depositAddress, x402Wallet } = row
    return { partition, accountId, keyId, secretHash, depositAddress, x402Wallet, options: readOptions(row) }
  }

  async #readSecrets(hashes: readonly string[]): Promise<ReadonlyMap<string, SecretRow>> {
    const rows = await rowsOf<SecretRow & { readonly hash: string }>(
      this.#options.database.queryPrepared(
        'find_secrets',
        `select encode(hash, 'hex') as hash, partition, account_id, key_id, expires_at <= clock_timestamp() as rotated
         from api_key_hashes where hash = any ($1::bytea[])`,
        [textArray(hashes.map((hash) => `\\x${hash}`))],
      ),
    )
    return new Map(rows.map((row) => [row.hash, row]))
  }

  /** One reader per partition, so that on Citus a dead worker fails only look-ups of its own keys. */
  #keysOf(partition: number): SharedRead<KeyRow> {
    let keys = this.#keys.get(partition)
    if (keys === undefined) {
      keys = new SharedRead((ids) => this.#readKeys(partition, ids))
      this.#keys.set(partition, keys)
    }
    return keys
  }

  async #readKeys(partition: number, ids: readonly string[]): Promise<ReadonlyMap<string, KeyRow>> {
    const rows = await rowsOf<KeyRow & { readonly id: string }>(
      this.#options.database.queryPrepared(
        'find_keys',
        `select k.id, k.revoked_at <= clock_timestamp() as revoked, k.disabled, k.expires_at <= clock_timestamp() as expired,
              a.address as deposit_address, a.wallet as x402_wallet, ${readColumns.map((column) => `k.${column}`)}
         from api_keys k join accounts a on a.partition = k.partition and a.id = k.account_id
        where k.partition = $1 and k.id = any ($2::uuid[])`,
        [partition, plainArray(ids)],
      ),
    )
    return new Map(rows.map((row) => [row.id, row]))
  }
}

type Found = Bearer | 'unknown' | 'revoked' | 'disabled' | 'expired' | 'rotated'

function admit(found: Found): Bearer {
  if (found === 'unknown') throw new InvalidApiKeyError()
  if (found === 'revoked') throw new RevokedApiKeyError()
  if (found === 'rotated') throw new RevokedApiKeyError('This API key was rotated. Use the new secret.')
  if (found === 'disabled') throw new RevokedApiKeyError('This API key is disabled. Enable it in the dashboard.')
  if (found === 'expired') throw new ExpiredApiKeyError()
  return found
}

type SecretRow = {
  readonly partition: number
  readonly accountId: string
  readonly keyId: string
  readonly rotated: boolean | undefined
}

type KeyRow = OptionRow & {
  readonly revoked: boolean | undefined
  readonly expired: boolean | undefined
  readonly depositAddress: string | undefined
  readonly x402Wallet: string | undefined
  readonly disabled: boolean
}

export class InvalidApiKeyError extends ServiceError {
  constructor(
    message = 'This API key does not exist. Check that you use the right key for this service, or create one in the dashboard.',
  ) {
    super('invalid_api_key', message)
  }
}

export class RevokedApiKeyError extends ServiceError {
  constructor(message = 'This API key was revoked. Create a new one in the dashboard.') {
    super('api_key_revoked', message)
  }
}

export class ExpiredApiKeyError extends ServiceError {
  constructor() {
    super('api_key_expired', 'This API key has expired. Create a new one in the dashboard.')
  }
}
