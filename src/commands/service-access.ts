import { CommandError, type Invocation } from './command.ts'
import { readSandboxFile } from './sandbox-file.ts'

/** Where a command sends requests as a customer would, and with which key. */
export type ServiceAccess = { readonly baseUrl: string; readonly apiKey: string }

export const accessOptions = { url: { type: 'string' }, key: { type: 'string' } } as const
export const accessUsage = `      --key penny_…                   another key than the sandbox's
      --url URL                       another service; ends in /v1`

/** What the options say, or what a service in the sandbox has left in the data folder. */
export function findAccess({ options, config }: Pick<Invocation, 'options' | 'config'>): ServiceAccess {
  const sandbox = readSandboxFile(config.dataDir)
  const baseUrl =
    typeof options.url === 'string'
      ? options.url.replace(/\/+$/, '')
      : (sandbox?.base_url ?? `${config.publicUrl ?? `http://localhost:${config.port}`}/v1`)
  const apiKey = typeof options.key === 'string' ? options.key : sandbox?.api_key
  if (apiKey === undefined)
    throw new CommandError('Say with which key: --key penny_… (penny keys create makes one), or start the sandbox.', 2)
  return { baseUrl, apiKey }
}

/** Posts JSON. A refusal fails the command with the service's own words. */
export async function post({ baseUrl, apiKey }: ServiceAccess, path: string, body: object): Promise<Response> {
  let response: Response
  try {
    response = await fetch(`${baseUrl}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
  } catch (error) {
    const { message, cause } = error as Error
    throw new CommandError(`No service answers at ${baseUrl}: ${(cause as Error | undefined)?.message || message}.`)
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
