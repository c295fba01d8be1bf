import { CommandError, type CommandUsage, type Invocation } from './command.ts'
import { findLogin, type Login } from './login-file.ts'
import { readSandboxFile } from './sandbox-file.ts'

/** Where a command sends requests as a customer would, and with which key. */
export type ServiceAccess = { readonly baseUrl: string; readonly apiKey: string }

export const accessOptions = { url: { type: 'string' }, key: { type: 'string' } } as const
export const accessUsage: CommandUsage = [
  ['--key penny_…', 'Key to use instead of that of penny login or the sandbox'],
  ['--url URL', 'Service to use instead; ends in /v1'],
]

/** The service and key of the options, of the login, or of the sandbox on the data folder. */
export function findAccess({ options, config }: Pick<Invocation, 'options' | 'config'>): ServiceAccess {
  const login = findLogin(config)
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

/** Sends a GET to the service of a login and parses the response. */
export async function get<Answer>({ origin, api_key: apiKey }: Login, path: string): Promise<Answer> {
  const response = await send(origin, path, { headers: { authorization: `Bearer ${apiKey}` } })
  return (await response.json()) as Answer
}

/** Throws a CommandError with the service's own message unless the answer is a success. */
export async function send(baseUrl: string, path: string, request: RequestInit): Promise<Response> {
  let response: Response
  try {
    response = await fetch(`${baseUrl}${path}`, request)
  } catch (error) {
    const { message, cause } = error as Error
    throw new CommandError(
      `The service at ${baseUrl} does not respond: ${(cause as Error | undefined)?.message || message}. Start it, or check the URL.`,
    )
  }
  if (response.ok) return response
  const text = await response.text()
  throw new CommandError(`${response.status}: ${messageIn(text) ?? text.slice(0, 500)}`)
}

function messageIn(text: string): string | undefined {
  try {
    return (JSON.parse(text) as { error?: { message?: string } }).error?.message
  } catch {
    return undefined
  }
}
