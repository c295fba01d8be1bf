import type { Bearer, KeyFinder } from '../identity/key-finder.ts'
import { InvalidApiKeyError } from '../identity/key-finder.ts'
import { checkAddress } from '../identity/key-options.ts'
import type { Visitor } from './visitor.ts'

/** The bearer of the key in the `Authorization` header. Throws a 401 or 403 error when the key is not accepted. */
export async function authenticate(keys: KeyFinder, visitor: Pick<Visitor, 'header' | 'address'>): Promise<Bearer> {
  const bearer = await findBearer(keys, visitor.header('authorization'))
  if (bearer.options.allowedIps.length > 0) checkAddress(await keys.currentOptions(bearer), visitor.address)
  return bearer
}

function findBearer(keys: KeyFinder, authorization: string | undefined): Promise<Bearer> {
  const [scheme, key, ...rest] = authorization?.trim().split(/\s+/) ?? []
  if (scheme === undefined) {
    return Promise.reject(
      new InvalidApiKeyError('The request has no API key. Send the header "Authorization: Bearer penny_…".'),
    )
  }
  if (scheme.toLowerCase() !== 'bearer' || key === undefined || rest.length > 0) {
    return Promise.reject(new InvalidApiKeyError('The Authorization header must be "Bearer penny_…".'))
  }
  return keys.find(key)
}
