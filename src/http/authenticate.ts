import type { Bearer, KeyFinder } from '../identity/api-keys.ts'
import { InvalidApiKeyError } from '../identity/api-keys.ts'

/** The bearer of the key in an `Authorization` header, or the 401 that says what is wrong with it. */
export function authenticate(keys: KeyFinder, authorization: string | undefined): Promise<Bearer> {
  const [scheme, key, ...rest] = authorization?.trim().split(/\s+/) ?? []
  if (scheme === undefined) {
    return Promise.reject(new InvalidApiKeyError('No API key was sent. Send it as "Authorization: Bearer penny_…".'))
  }
  if (scheme.toLowerCase() !== 'bearer' || key === undefined || rest.length > 0) {
    return Promise.reject(new InvalidApiKeyError('The Authorization header must read "Bearer penny_…".'))
  }
  return keys.find(key)
}
