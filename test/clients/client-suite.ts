import assert from 'node:assert/strict'
import { after, afterEach, before } from 'node:test'
import type { NewApiKey } from '../../src/identity/api-keys.ts'
import type { WebTools } from '../../src/tools/web-tools.ts'
import { assertBooksClosed } from '../support/audit.ts'
import {
  getRow,
  postChat,
  type RequestBody,
  startTestService,
  type TestAccount,
  type TestService,
} from '../support/service.ts'
import { until } from '../support/until.ts'
import { type Exchange, startTap, type Tap } from './tap.ts'
import { problemsOf } from './wire.ts'

/** The default model, and the one whose price makes it easy to hold much money. */
export const model = 'gpt-5.6-terra'
export const dearModel = 'gpt-6-astra'

/** No client here returns to an attempt that it left. */
const retryGrace = { beforeOutputMs: 500, afterOutputMs: 500 }

/** A running service for the tests of one client, with a tap before it that every answer must pass. */
export type ClientSuite = {
  /** The address to give to the client: ends in /v1. */
  readonly baseUrl: string
  readonly service: TestService
  /** The exchanges of the current test. */
  readonly exchanges: readonly Exchange[]
  readonly statuses: readonly number[]
  /** The next answer with this status, once all of it has passed. */
  next(status: number): Promise<Exchange>
  /** A request by plain HTTP to a path below /v1, by an account or by nobody. */
  send(path: string, sender: { readonly apiKey: string } | undefined, init?: RequestInit): Promise<Exchange>
  /** A chat completion by plain HTTP. */
  post(sender: { readonly apiKey: string }, body: object | string): Promise<Exchange>
  openAccount(balance?: string, key?: Partial<NewApiKey>): Promise<TestAccount>
  /** The ledger row of an answer, once the request has ended. */
  ended(account: TestAccount, requestId: string): Promise<RequestBody>
  /** The id of the account's only request, as soon as its money is held. */
  heldRequest(account: TestAccount): Promise<string>
  /** Holds nearly all that an account may have in flight. */
  fillCap(account: TestAccount): Promise<{ release(): Promise<void> }>
}

/** Starts the service before the tests of a file and stops it after them; after each, looks at all that was answered. */
export function clientSuite(environment: Readonly<Record<string, string>> = {}, web?: WebTools): ClientSuite {
  let service: TestService
  let tap: Tap
  before(async () => {
    service = await startTestService({ environment, retryGrace, ...(web !== undefined && { web }) })
    tap = await startTap(service.origin)
  })
  afterEach(() => {
    const problems = tap.exchanges.flatMap(problemsOf)
    tap.forget()
    assert.deepEqual(problems, [])
  })
  after(async () => {
    try {
      await assertBooksClosed(service.database)
    } finally {
      await tap.stop()
      await service.stop()
    }
  })
  return {
    get baseUrl() {
      return tap.baseUrl
    },
    get service() {
      return service
    },
    get exchanges() {
      return tap.exchanges
    },
    get statuses() {
      return tap.exchanges.map(({ status }) => status)
    },
    next: (status) => tap.next(status),
    send: (path, sender, init = {}) => send(tap, path, sender, init),
    post: (sender, body) =>
      send(tap, '/chat/completions', sender, {
        method: 'POST',
        body: typeof body === 'string' ? body : JSON.stringify(body),
      }),
    openAccount: (balance = '25', key = {}) => service.openAccount(balance, key),
    ended: (account, requestId) => ended(service, account, requestId),
    heldRequest: (account) => heldRequest(service, account),
    fillCap: (account) => fillCap(service, account),
  }
}

async function send(
  tap: Tap,
  path: string,
  sender: { readonly apiKey: string } | undefined,
  init: RequestInit,
): Promise<Exchange> {
  const headers = new Headers({ 'content-type': 'application/json', ...init.headers })
  if (sender !== undefined) headers.set('authorization', `Bearer ${sender.apiKey}`)
  const response = await fetch(`${tap.baseUrl}${path}`, { ...init, headers })
  await response.text()
  return tap.exchanges.at(-1)!
}

function ended(service: TestService, { apiKey }: TestAccount, requestId: string): Promise<RequestBody> {
  return until(async () => {
    const row = await getRow(service, apiKey, requestId)
    // A refusal is written in the background: until then there is no row.
    return row.status === undefined || row.status === 'held' ? undefined : row
  })
}

function heldRequest(service: TestService, { id }: TestAccount): Promise<string> {
  return until(async () => {
    const [row] = await service.database.query<{ id: string }>('select id from request_log where account_id = $1', [id])
    return row && `req_${row.id.replaceAll('-', '')}`
  })
}

async function fillCap(service: TestService, account: TestAccount): Promise<{ release(): Promise<void> }> {
  const leave = new AbortController()
  const body = {
    model: dearModel,
    // 0.975 USDC of the 1.00 that may be in flight.
    max_tokens: 39_000,
    stream: true,
    messages: [{ role: 'user', content: '[sandbox:stall-after 3]' }],
  }
  const answer = await postChat(service, account.apiKey, body, { signal: leave.signal })
  assert.equal(answer.status, 200)
  return {
    async release() {
      leave.abort()
      await ended(service, account, answer.headers.get('x-router-request-id')!)
    },
  }
}
