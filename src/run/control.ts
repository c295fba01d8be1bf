import { randomBytes, timingSafeEqual } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync, rmSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { OperatorError, reasonOf } from '../errors.ts'
import { writePrivateFile } from '../process/private-file.ts'
import type { ProviderHealth } from '../providers/provider.ts'
import type { StartContext } from './start-context.ts'

/** The requests that commands on the same machine can send to a running service. */
export type ControlActions = {
  readonly providers: () => readonly ProviderHealth[]
  /** Returns warnings, one line each. Throws an error with one line per mistake. */
  readonly reloadProviders: () => readonly string[]
}

const controlFile = 'control.json'
const host = '127.0.0.1'
const askMsMax = 10_000

/**
 * Serves `penny providers` on a separate port that is reachable only from this machine, protected by a token in the data folder
 * that only the service's user can read.
 */
export async function openControl({ config, stack }: StartContext, actions: ControlActions): Promise<void> {
  const token = randomBytes(24).toString('base64url')
  const server = createServer((request, response) => answer(request, response, token, actions))
  server.listen(0, host)
  await once(server, 'listening')
  const path = join(config.dataDir, controlFile)
  writePrivateFile(path, JSON.stringify({ url: `http://${host}:${(server.address() as AddressInfo).port}`, token }))
  stack.defer(() => {
    rmSync(path, { force: true })
    server.close()
    server.closeAllConnections()
  })
}

function answer(request: IncomingMessage, response: ServerResponse, token: string, actions: ControlActions): void {
  const send = (status: number, body: object) =>
    response.writeHead(status, { 'content-type': 'application/json', connection: 'close' }).end(JSON.stringify(body))
  if (!isToken(request.headers.authorization, token)) return void send(401, { message: 'Wrong token.' })
  try {
    switch (`${request.method} ${request.url}`) {
      case 'GET /providers':
        return void send(200, { providers: actions.providers() })
      case 'POST /providers/reload':
        return void send(200, { warnings: actions.reloadProviders(), providers: actions.providers() })
      default:
        return void send(404, { message: 'Unknown action.' })
    }
  } catch (error) {
    const isExpected = error instanceof OperatorError
    send(isExpected ? 422 : 500, { message: isExpected ? error.message : reasonOf(error) })
  }
}

function isToken(header: string | undefined, token: string): boolean {
  const given = Buffer.from(header ?? '')
  const expected = Buffer.from(`Bearer ${token}`)
  return given.length === expected.length && timingSafeEqual(given, expected)
}

export type ControlAnswer = { readonly providers: readonly ProviderHealth[]; readonly warnings?: readonly string[] }

/** Calls the service that runs on this data folder. Throws its message when it refuses. */
export async function askControl(dataDir: string, method: 'GET' | 'POST', path: string): Promise<ControlAnswer> {
  let response: Response
  try {
    const { url, token } = JSON.parse(readFileSync(join(dataDir, controlFile), 'utf8')) as Record<string, string>
    const headers = { authorization: `Bearer ${token}` }
    response = await fetch(`${url}${path}`, { method, headers, signal: AbortSignal.timeout(askMsMax) })
  } catch (error) {
    throw new NoServiceError(dataDir, error)
  }
  const body = (await response.json()) as ControlAnswer & { readonly message?: string }
  if (!response.ok) throw new ControlRefusal(String(body.message))
  return body
}

export class NoServiceError extends Error {
  constructor(dataDir: string, cause: unknown) {
    super(`No service runs on ${dataDir}. Start it, or set DATA_DIR to its folder.`, { cause })
    this.name = 'NoServiceError'
  }
}

/** The service refused the request; the message says why. */
export class ControlRefusal extends Error {}
