import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync, rmSync } from 'node:fs'
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { OperatorError, reasonOf } from '../errors.ts'
import type { MetricSamples } from '../observe/metric.ts'
import { writePrivateFile } from '../process/private-file.ts'
import { isSameSecret } from '../process/same-secret.ts'
import type { ProviderHealth } from '../providers/provider.ts'
import type { StartContext } from './start-context.ts'

/** Actions of a process that serves requests, for other processes of this machine. */
export type ControlActions = {
  readonly providers: () => Awaitable<readonly ProviderHealth[]>
  /** Returns warnings, one line each. Throws an error with one line per mistake. */
  readonly reloadProviders: () => Awaitable<readonly string[]>
  readonly samples: () => Awaitable<readonly MetricSamples[]>
  /** The number of requests in progress. */
  readonly requests: () => Awaitable<number>
  /** Ends a stop's wait for requests in progress. */
  readonly hurry: () => void
}

type Awaitable<Value> = Value | Promise<Value>

export type ControlAddress = { readonly url: string; readonly token: string }

const controlFile = 'control.json'
const host = '127.0.0.1'
const askMsMax = 10_000
/** Less than the time that Prometheus waits for a scrape: a process that hangs must not hide the others. */
const askProcessMsMax = 3_000

/** Serves the actions on a separate port that is reachable only from this machine, protected by a token. */
export async function openControl(
  { stack }: StartContext,
  actions: ControlActions,
  operatorApi?: RequestListener,
): Promise<ControlAddress> {
  const token = randomBytes(24).toString('base64url')
  const server = createServer((request, response) => {
    if (!isSameSecret(request.headers.authorization ?? '', `Bearer ${token}`))
      return void send(response, 401, { message: 'Wrong token.' })
    if (operatorApi !== undefined && request.url?.startsWith('/api/')) return operatorApi(request, response)
    void answer(request, response, actions)
  })
  server.listen(0, host)
  await once(server, 'listening')
  stack.defer(() => {
    server.close()
    server.closeAllConnections()
  })
  return { url: `http://${host}:${(server.address() as AddressInfo).port}`, token }
}

/** What commands beside the service find in its data folder. */
type PublishedControl = ControlAddress & {
  /** The service's PUBLIC_URL, for links: a command may lack that setting. */
  readonly publicUrl: string
}

/** For commands and the other web processes. Only the service's user can read the token in the data folder. */
export function publishControl(
  { config, stack }: Pick<StartContext, 'config' | 'stack'>,
  control: PublishedControl,
): void {
  const path = join(config.dataDir, controlFile)
  writePrivateFile(path, JSON.stringify(control))
  stack.defer(() => rmSync(path, { force: true }))
}

/** The service that runs on this data folder; undefined when none does. Of a service that was killed it may still be there. */
export function findControl(dataDir: string): PublishedControl | undefined {
  try {
    return readControl(dataDir)
  } catch {
    return undefined
  }
}

function readControl(dataDir: string): PublishedControl {
  return JSON.parse(readFileSync(join(dataDir, controlFile), 'utf8')) as PublishedControl
}

async function answer(request: IncomingMessage, response: ServerResponse, actions: ControlActions): Promise<void> {
  try {
    switch (`${request.method} ${request.url}`) {
      case 'GET /providers':
        return send(response, 200, { providers: await actions.providers() })
      case 'POST /providers/reload':
        return send(response, 200, { warnings: await actions.reloadProviders(), providers: await actions.providers() })
      case 'GET /metrics':
        return send(response, 200, { samples: await actions.samples() })
      case 'GET /requests':
        return send(response, 200, { requests: await actions.requests() })
      case 'POST /hurry':
        actions.hurry()
        return send(response, 200, {})
      default:
        return send(response, 404, { message: 'Unknown action.' })
    }
  } catch (error) {
    const isExpected = error instanceof OperatorError
    send(response, isExpected ? 422 : 500, { message: isExpected ? error.message : reasonOf(error) })
  }
}

function send(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json', connection: 'close' }).end(JSON.stringify(body))
}

export type ControlAnswer = {
  readonly providers: readonly ProviderHealth[]
  readonly warnings?: readonly string[]
  readonly samples: readonly MetricSamples[]
  readonly requests: number
}

/** Calls the service that runs on this data folder. Throws its message when it refuses. */
export async function askControl(dataDir: string, method: 'GET' | 'POST', path: string): Promise<ControlAnswer> {
  let response: Response
  try {
    response = await call(readControl(dataDir), { method, path, msMax: askMsMax })
  } catch (error) {
    throw new NoServiceError(dataDir, error)
  }
  return readAnswer(response)
}

/** Calls one process. */
export async function askProcess(
  address: ControlAddress,
  method: 'GET' | 'POST',
  path: string,
): Promise<ControlAnswer> {
  return readAnswer(await call(address, { method, path, msMax: askProcessMsMax }))
}

type ControlCall = { readonly method: 'GET' | 'POST'; readonly path: string; readonly msMax: number }

function call({ url, token }: ControlAddress, { method, path, msMax }: ControlCall): Promise<Response> {
  const headers = { authorization: `Bearer ${token}` }
  return fetch(`${url}${path}`, { method, headers, signal: AbortSignal.timeout(msMax) })
}

async function readAnswer(response: Response): Promise<ControlAnswer> {
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
