import { InvalidConfigError } from './setting.ts'

export type DatabaseServers = {
  /** In the order of the URL. */
  readonly servers: readonly DatabaseServer[]
  /** Skip servers that refuse writes. True with several hosts, and when the URL requires it. */
  readonly mustWrite: boolean
}

export type DatabaseServer = {
  /** Host and port, for messages. */
  readonly name: string
  /** The same database on this server alone. */
  readonly url: string
}

const serversMax = 16
const portDefault = 5432
const authority = /^(?<before>postgres(?:ql)?:\/\/(?:[^/?#]*@)?)(?<hosts>[^/?#]*)(?<after>.*)$/s
/** The service writes, so it can use only servers with these values of libpq's parameter. */
const targets: readonly string[] = ['any', 'read-write', 'primary']

/**
 * Parses libpq's form with several hosts: `postgresql://user@host1:5432,host2:5432/name?target_session_attrs=read-write`. The driver
 * itself supports only one host.
 */
export function readDatabaseServers(url: string): DatabaseServers {
  const { before, hosts, after } = partsOf(url)
  const parameters = new URLSearchParams(/\?([^#]*)/.exec(after)?.[1] ?? '')
  const target = parameters.get('target_session_attrs') ?? 'any'
  if (!targets.includes(target)) {
    throw new InvalidConfigError(`target_session_attrs=${target} is not supported. Use one of ${targets.join(', ')}.`)
  }
  if (parameters.get('host')?.includes(',')) {
    throw new InvalidConfigError(
      'Several hosts go before the name of the database: postgresql://host1:5432,host2:5432/name.',
    )
  }
  const names = hosts.split(',')
  if (names.length > serversMax) {
    throw new InvalidConfigError(`DATABASE_URL has ${names.length} hosts; the limit is ${serversMax}.`)
  }
  const servers = names.map((host) => ({ name: nameOf(host), url: `${before}${host}${after}` }))
  if (names.length > 1) {
    const invalid = names.findIndex((host, index) => host === '' || !URL.canParse(servers[index]!.url))
    if (invalid >= 0) throw new InvalidConfigError(`Host ${invalid + 1} of ${names.length} in DATABASE_URL is invalid.`)
  }
  return { servers, mustWrite: names.length > 1 || target !== 'any' }
}

/** Sets a parameter of a database URL. `URL` does not accept several hosts. */
export function changeParameter(url: string, name: string, change: (value: string | null) => string): string {
  const { before, hosts, after } = partsOf(url)
  const [, path, query = ''] = /^([^?#]*)\??([^#]*)/.exec(after)!
  const parameters = new URLSearchParams(query)
  parameters.set(name, change(parameters.get(name)))
  return `${before}${hosts}${path}?${parameters}`
}

function partsOf(url: string): { readonly before: string; readonly hosts: string; readonly after: string } {
  const groups = authority.exec(url)?.groups
  if (groups === undefined) throw new InvalidConfigError('DATABASE_URL must begin with postgresql://.')
  return { before: groups.before!, hosts: groups.hosts!, after: groups.after! }
}

function nameOf(host: string): string {
  const plain = decodeURIComponent(host)
  return /:\d+$/.test(plain) || plain.startsWith('/') ? plain : `${plain}:${portDefault}`
}
