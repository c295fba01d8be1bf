import { isIP } from 'node:net'
import { isPublicAddress } from './addresses.ts'
import { FetchFailedError } from './web-fetch.ts'

const urlCharactersMax = 2_048
const hostCharactersMax = 253
const labelCharactersMax = 63
const ports = ['', '80', '443']

/** Names that lead into somebody's own network, or nowhere, whatever a resolver says. */
const localDomains = [
  'localhost',
  'localdomain',
  'local',
  'internal',
  'intranet',
  'private',
  'corp',
  'home',
  'lan',
  'home.arpa',
  'onion',
  'invalid',
  'test',
]

/**
 * A page's address, parsed once: only the returned object is used from here on, never the text, so that no two parsers
 * can disagree about its host. Numbers in every notation (`0x7f.1`, `2130706433`, `①②⑦.⓪.⓪.①`) are plain addresses by then.
 */
export function parsePageUrl(text: string, base?: URL): URL {
  if (text.length > urlCharactersMax) throw new RefusedUrlError(`may have ${urlCharactersMax} characters`)
  const url = URL.parse(text, base?.href)
  if (url === null) throw new RefusedUrlError('must be a whole one, such as https://example.com/page')
  if (url.protocol !== 'http:' && url.protocol !== 'https:') throw new RefusedUrlError('must be http or https')
  if (url.username !== '' || url.password !== '') throw new RefusedUrlError('must have no user name or password')
  if (!ports.includes(url.port)) throw new RefusedUrlError('must use port 80 or 443')
  if (url.href.length > urlCharactersMax) throw new RefusedUrlError(`may have ${urlCharactersMax} characters`)
  // The dot of a fully qualified name: the same host, so it must look the same to every rule below.
  if (url.hostname.endsWith('.')) url.hostname = url.hostname.slice(0, -1)
  url.hash = ''
  return url
}

/** The host as a socket takes it: an IPv6 address without its brackets. */
export function hostOf(url: URL): string {
  return url.hostname.startsWith('[') ? url.hostname.slice(1, -1) : url.hostname
}

/** Refuses, by the text of the host alone, what cannot be a stranger's public page. */
export function refuseLocalHost(url: URL): void {
  const host = hostOf(url)
  const allowed = isIP(host) === 0 ? isPublicName(host) : isPublicAddress(host)
  if (!allowed) throw new RefusedUrlError('must be that of a public host')
}

function isPublicName(host: string): boolean {
  if (host.length > hostCharactersMax) return false
  const labels = host.split('.')
  if (labels.length < 2 || labels.some((label) => label === '' || label.length > labelCharactersMax)) return false
  return !localDomains.some((domain) => host === domain || host.endsWith(`.${domain}`))
}

/** Refused for its text, before anything was looked up. */
export class RefusedUrlError extends FetchFailedError {
  /** What every address has to fulfil, after "it". */
  readonly rule: string
  constructor(rule: string) {
    super(`This address cannot be fetched: it ${rule}.`)
    this.rule = rule
  }
}
