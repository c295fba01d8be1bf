import { isIP } from 'node:net'
import { ServiceError } from '../errors.ts'
import type { Visitor } from './visitor.ts'

/** The public address of the dashboard. Cookies, passkeys and the origin check depend on it. */
export type Site = {
  /** Without a trailing slash. */
  readonly publicUrl: string
  readonly origin: string
  /** Host and port, as wallets show them. */
  readonly domain: string
  readonly isSecure: boolean
  /** Browsers treat plain http on loopback as secure. */
  readonly isLoopback: boolean
  /** Undefined for an IP address: passkeys need a host name. */
  readonly relyingPartyId: string | undefined
}

export function siteOf(publicUrl: string): Site {
  const { origin, host, hostname, protocol } = new URL(publicUrl)
  return {
    publicUrl,
    origin,
    domain: host,
    isSecure: protocol === 'https:',
    isLoopback: isLoopbackName(hostname),
    relyingPartyId: isIP(hostname.replace(/^\[|\]$/g, '')) === 0 ? hostname : undefined,
  }
}

/** Explains to people why signing in is not safe here; undefined when it is. */
export function signInProblem(site: Site, visitor: Visitor): string | undefined {
  if (site.isSecure) return undefined
  if (site.isLoopback && isLoopbackName(hostnameOf(visitor.header('host')))) return undefined
  return site.isLoopback
    ? `Signing in over plain http works only on the machine itself, at ${site.publicUrl}. For other machines, serve it over https and set PUBLIC_URL to that address.`
    : `Signing in needs https: ${site.publicUrl} is plain http, which exposes the session to the network. Set PUBLIC_URL to an https address.`
}

export function checkSignInIsSafe(site: Site, visitor: Visitor): void {
  const problem = signInProblem(site, visitor)
  if (problem !== undefined) throw new ServiceError('insecure_connection', problem)
}

/**
 * CSRF protection: a request that changes something must carry our own `Origin`. A missing one is refused too, because every browser
 * sends it with such requests.
 */
export function checkSameOrigin({ origin }: Site, visitor: Visitor): void {
  const from = visitor.header('origin')
  const relation = visitor.header('sec-fetch-site')
  if (from !== origin || (relation !== undefined && relation !== 'same-origin'))
    throw new ServiceError(
      'cross_site_request',
      `This request came from ${from === undefined ? 'an unknown origin' : from.slice(0, 200)}; only pages of ${origin} can make changes. Nothing was changed.`,
    )
}

/** The address to redirect a page at 127.0.0.1 to: cookies belong to a host name, and passkeys refuse an IP address. */
export function pageAtItsName(site: Site, visitor: Visitor, pathAndQuery: string): string | undefined {
  const hostname = hostnameOf(visitor.header('host'))
  const isNumber = hostname === '127.0.0.1' || hostname === '[::1]'
  return site.domain.startsWith('localhost') && isNumber ? `${site.origin}${pathAndQuery}` : undefined
}

function hostnameOf(host: string | undefined): string {
  return URL.parse(`http://${host}`)?.hostname ?? ''
}

function isLoopbackName(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || /^127(\.\d{1,3}){3}$/.test(hostname)
}

const cookieOfHost = '__Host-penny'
const cookieOfLoopback = 'penny_session'

export function readSessionToken(site: Site, visitor: Visitor): string | undefined {
  const name = cookieName(site)
  for (const pair of visitor.header('cookie')?.split(';', cookiesMax) ?? []) {
    const [key, value] = pair.split('=', 2)
    if (key?.trim() === name) return value?.trim()
  }
  return undefined
}

const cookiesMax = 100

/** `__Host-` binds the cookie to this host and to https. Loopback has no https, so its cookie has another name. */
export function sessionCookie(site: Site, token: string, secondsMax: number): string {
  const secure = site.isSecure ? '; Secure' : ''
  return `${cookieName(site)}=${token}; Path=/; HttpOnly; SameSite=Lax; Max-Age=${secondsMax}${secure}`
}

export function clearedCookie(site: Site): string {
  return sessionCookie(site, '', 0)
}

function cookieName({ isSecure }: Site): string {
  return isSecure ? cookieOfHost : cookieOfLoopback
}
