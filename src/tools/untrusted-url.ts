import { isIP } from 'node:net'
import { isPublicAddress } from './addresses.ts'
import { FetchFailedError } from './web-fetch.ts'

const urlCharactersMax = 2_048
const hostCharactersMax = 253
const labelCharactersMax = 63
const ports = ['', '80', '443']

/** Names that belong to private networks or resolve nowhere. They are refused without a DNS lookup. */
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
 * Parses a page's address once. Later code uses only the returned object, never the text, so that no two parsers can disagree about
 * the host. The parser turns numbers in every notation (`0x7f.1`, `2130706433`, `①②⑦.⓪.⓪.①`) into plain addresses.
 */
export function parsePageUrl(text: string, base?: URL): URL {
  if (text.length > urlCharactersMax) throw new RefusedUrlError(`may have ${urlCharactersMax} characters`)
  const url = URL.parse(text, base?.href)
  if (url === null) throw new RefusedUrlError('must be a whole one, such as https://example.com/page')
  if (url.protocol !== 'http:' && url.protocol !== 'https:') throw new RefusedUrlError('must be http or https')
  if (url.username !== '' || url.password !== '') throw new RefusedUrlError('must have no user name or password')
  if (!ports.includes(url.port)) throw new RefusedUrlError('must use port 80 or 443')
  if (url.href.length > urlCharactersMax) throw new RefusedUrlError(`may have ${urlCharactersMax} characters`)
  // Strip the trailing dot of a fully qualified name: it is the same host, so every rule below must see the same text.
  if (url.hostname.endsWith('.')) url.hostname = url.hostname.slice(0, -1)
  url.hash = ''
  return url
}

/** The host as sockets expect it: an IPv6 address without brackets. */
export function hostOf(url: URL): string {
  return url.hostname.startsWith('[') ? url.hostname.slice(1, -1) : url.hostname
}

/** Refuses hosts that cannot be public, by their text alone. */
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

/** The address was refused by its text, before any DNS lookup. */
export class RefusedUrlError extends FetchFailedError {
  /** The broken rule, worded to follow "it". */
  readonly rule: string
  constructor(rule: string) {
    super(`This address cannot be fetched: it ${rule}.`)
    this.rule = rule
  }
}
