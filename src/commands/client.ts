import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { findOutsideDatabase } from '../db/database-file.ts'
import { managementPrefix } from '../identity/api-key-format.ts'
import type { AnswerOf, Contract } from '../openapi/contract.ts'
import { findControl } from '../run/control.ts'
import { CommandError, type CommandUsage, type Invocation } from './command.ts'
import { readLogin } from './login-file.ts'
import { readSandboxFile } from './sandbox-file.ts'

/** The input of a call, as its contract describes it. */
export type CallInput = {
  readonly parameters?: Readonly<Record<string, string>>
  readonly query?: Readonly<Record<string, string | number | readonly string[] | undefined>>
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: unknown
}

/** The service that a customer command talks to, over HTTP, and what the command may do there. */
export type Client = {
  /** As a browser opens it. */
  readonly origin: string
  /** False with an API key alone: it pays for requests, and reads about itself and them. */
  readonly manages: boolean
  call<Exact extends Contract>(contract: Exact, input?: CallInput): Promise<AnswerOf<Exact>>
  open(contract: Contract, input?: CallInput): Promise<Response>
}

export const accountOption = { account: { type: 'string' } } as const
export const accountUsage: CommandUsage = [
  [
    '--account ID|NAME',
    'On the machine of the service: the account (default: the only account, or the demo account of the sandbox)',
  ],
]

/**
 * Beside a service, its operator: the data folder has the address and the token of the control port, which serves `/api` for any account.
 * Elsewhere the login of this user. `account` names the account for the operator.
 */
export function findClient(
  { options, config }: Pick<Invocation, 'options' | 'config'>,
  account: string | undefined = typeof options.account === 'string' ? options.account : undefined,
): Client {
  const control = findControl(config.dataDir)
  if (control !== undefined) {
    const headers = {
      authorization: `Bearer ${control.token}`,
      ...(account !== undefined && { 'x-router-account': encodeURIComponent(account) }),
    }
    const gone = `No service runs on ${config.dataDir}. Start it with penny start.`
    return clientOf(control.publicUrl, true, (contract, input) => ask(control.url, { contract, input, headers, gone }))
  }
  const login = readLogin(config)
  if (login === undefined || hasService(config)) {
    const message = `No service runs on ${config.dataDir}. Start it with penny start, set DATA_DIR to the folder of a service that runs, or connect to one with penny login URL.`
    // Only when it is called: what is wrong with the command's own words is said first.
    return clientOf('', true, async () => {
      throw new CommandError(message)
    })
  }
  if (typeof options.account === 'string')
    throw new CommandError(`--account is for the operator. The login to ${login.origin} has one account.`, 2)
  const { origin, api_key: apiKey, management_key: managementKey } = login
  return clientOf(origin, managementKey !== undefined, (contract, input) => {
    const key = contract.access === 'session' ? (managementKey ?? apiKey) : (apiKey ?? managementKey)
    if (key === undefined) throw new CommandError(`This needs an API key. Log in: penny login ${origin}`, 2)
    return ask(origin, { contract, input, headers: { authorization: `Bearer ${key}` } })
  })
}

/** A client with one API or management key. */
export function clientWithKey(origin: string, key: string): Client {
  const headers = { authorization: `Bearer ${key}` }
  const manages = key.startsWith(managementPrefix)
  return clientOf(origin, manages, (contract, input) => ask(origin, { contract, input, headers }))
}

type Open = Client['open']

function clientOf(origin: string, manages: boolean, open: Open): Client {
  return {
    origin,
    manages,
    open,
    call: async (contract, input) => (await (await open(contract, input)).json()) as never,
  }
}

/** A folder with a database belongs to a service of this machine, also while it is stopped: a login must not stand in for it. */
function hasService(config: Invocation['config']): boolean {
  return findOutsideDatabase(config) !== undefined || existsSync(join(config.dataDir, 'postgres'))
}

type Asked = {
  readonly contract: Contract
  readonly input: CallInput | undefined
  readonly headers: Readonly<Record<string, string>>
  /** The message when the service does not respond. */
  readonly gone?: string
}

function ask(baseUrl: string, { contract, input = {}, headers, gone }: Asked): Promise<Response> {
  const { parameters = {}, query = {}, body } = input
  const path = contract.path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(parameters[name] ?? ''))
  const search = new URLSearchParams(
    Object.entries(query).flatMap(([name, value]) =>
      value === undefined ? [] : [value].flat().map((one) => [name, String(one)]),
    ),
  )
  const request = {
    method: contract.method,
    headers: { ...headers, ...input.headers, ...(body !== undefined && { 'content-type': 'application/json' }) },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  }
  return send(baseUrl, `${path}${search.size === 0 ? '' : `?${search}`}`, request, gone)
}

/** The service refused a call. */
export class CallRefusedError extends CommandError {
  readonly status: number
  readonly code: string | undefined
  /** The first part of the place in the request, such as `allowed_ips`. */
  readonly param: string | undefined
  constructor(status: number, message: string, { code, param }: Refusal) {
    const hint = code === 'session_required' ? ' Log in with one: penny login URL --key penny_mgmt_…' : ''
    super(`${message}${hint}`, status === 400 ? 2 : 1)
    this.status = status
    this.code = code
    this.param = param?.split(/[.[]/)[0]
  }
}

type Refusal = { readonly code?: string; readonly message?: string; readonly param?: string | null }

/** Throws a CommandError with the service's own message unless the answer is a success. */
export async function send(baseUrl: string, path: string, request: RequestInit, gone?: string): Promise<Response> {
  let response: Response
  try {
    response = await fetch(`${baseUrl}${path}`, request)
  } catch (error) {
    const { message, cause } = error as Error
    throw new CommandError(
      gone ??
        `The service at ${baseUrl} does not respond: ${(cause as Error | undefined)?.message || message}. Start it, or check the URL.`,
    )
  }
  if (response.ok) return response
  const text = await response.text()
  const refusal = refusalIn(text)
  const message = refusal.message ?? text.slice(0, 500)
  throw new CallRefusedError(response.status, gone === undefined ? `${response.status}: ${message}` : message, refusal)
}

function refusalIn(text: string): Refusal {
  try {
    return (JSON.parse(text) as { error?: Refusal }).error ?? {}
  } catch {
    return {}
  }
}

/** Where a command sends requests as a customer would, and with which API key. */
export type ServiceAccess = { readonly baseUrl: string; readonly apiKey: string }

export const accessOptions = { url: { type: 'string' }, key: { type: 'string' } } as const
export const accessUsage: CommandUsage = [
  ['--key penny_…', 'Key to use instead of that of penny login or the sandbox'],
  ['--url URL', 'Service to use instead; ends in /v1'],
]

/** The service and key of the options, of the login, or of the sandbox on the data folder. */
export function findAccess({ options, config }: Pick<Invocation, 'options' | 'config'>): ServiceAccess {
  const login = hasService(config) ? undefined : readLogin(config)
  const known =
    login === undefined ? readSandboxFile(config.dataDir) : { base_url: `${login.origin}/v1`, api_key: login.api_key }
  const baseUrl =
    typeof options.url === 'string'
      ? options.url.replace(/\/+$/, '')
      : (known?.base_url ?? `${config.publicUrl ?? `http://localhost:${config.port}`}/v1`)
  if (!/^https?:$/.test(URL.parse(baseUrl)?.protocol ?? ''))
    throw new CommandError(`--url must be an address such as https://penny.example/v1. Got "${baseUrl}".`, 2)
  const apiKey = typeof options.key === 'string' ? options.key : known?.api_key
  if (apiKey === undefined)
    throw new CommandError(
      'No API key. Use --key penny_…, log in with penny login URL, or start the sandbox (with the same DATA_DIR as here).',
      2,
    )
  return { baseUrl, apiKey }
}

/** Posts JSON. A refusal fails the command with the service's own words. */
export function post(
  { baseUrl, apiKey }: ServiceAccess,
  path: string,
  body: object,
  signal?: AbortSignal,
): Promise<Response> {
  return send(baseUrl, path, {
    method: 'POST',
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
    ...(signal !== undefined && { signal }),
  })
}
