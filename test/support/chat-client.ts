import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import { type Agent, type IncomingMessage, request } from 'node:http'
import type { Socket } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { getRow, type RequestBody, type TestAccount, type TestService } from './service.ts'

/** One request by plain HTTP, which the test reads piece by piece and leaves when it wants to. */
export type ChatCall = {
  /** The head of the answer, as soon as it has come. */
  readonly answer: Promise<IncomingMessage>
  /** Hangs up. */
  leave(): void
}

export type ChatCallOptions = { readonly agent?: Agent; readonly headers?: Readonly<Record<string, string>> }

/** Nothing of the answer's body is read before the test asks for it. */
export function callChat(
  service: TestService,
  account: TestAccount,
  body: object,
  options: ChatCallOptions = {},
): ChatCall {
  const outgoing = request(`${service.baseUrl}/chat/completions`, {
    method: 'POST',
    agent: options.agent ?? false,
    headers: { authorization: `Bearer ${account.apiKey}`, 'content-type': 'application/json', ...options.headers },
  })
  const answer = once(outgoing, 'response').then(([incoming]) => incoming as IncomingMessage)
  // A client that disconnects before the head arrives does not wait for it.
  answer.catch(() => {})
  outgoing.on('error', () => {})
  outgoing.end(JSON.stringify(body))
  return { answer, leave: () => void outgoing.destroy() }
}

/** The blocks of an event stream, one at a time, read on demand. Ends early when the stream breaks. */
export async function* framesOf(answer: IncomingMessage): AsyncGenerator<string, void, undefined> {
  let rest = ''
  for await (const text of answer.setEncoding('utf8')) {
    const frames = (rest + text).split('\n\n')
    rest = frames.pop()!
    yield* frames
  }
  if (rest !== '') yield rest
}

export async function allFrames(call: ChatCall): Promise<string[]> {
  return Array.fromAsync(framesOf(await call.answer))
}

/** The members of a chunk that tests look at. */
export type Chunk = {
  readonly id: string
  readonly created: number
  readonly model: string
  readonly system_fingerprint: string
  readonly choices: readonly [{ readonly delta: Delta; readonly finish_reason: string | null }?]
  readonly usage?: { readonly completion_tokens: number } | null
  readonly error?: { readonly code: string; readonly request_id: string }
}

type Delta = {
  readonly role?: string
  readonly content?: string
  readonly reasoning_content?: string
  readonly tool_calls?: readonly {
    readonly index: number
    readonly id?: string
    readonly type?: string
    readonly function: { readonly name?: string; readonly arguments: string }
  }[]
}

/** The chunk in a frame; undefined for comments and for the end. */
export function chunkOf(frame: string): Chunk | undefined {
  return frame.startsWith('data: {') ? (JSON.parse(frame.slice('data: '.length)) as Chunk) : undefined
}

export function contentOf(frame: string): string {
  return chunkOf(frame)?.choices?.[0]?.delta.content ?? ''
}

/** Reads until the content has come this far; what follows stays unread. */
export async function readContent(frames: AsyncGenerator<string>, length: number): Promise<string> {
  let content = ''
  while (content.length < length) {
    const { value, done } = await frames.next()
    if (done === true) throw new Error(`the stream ended after ${content.length} of ${length} characters`)
    content += contentOf(value)
  }
  return content
}

/** Waits until the account has this many rows, all ended, and returns them, oldest first. */
export async function endedRows(service: TestService, account: TestAccount, count: number): Promise<RequestBody[]> {
  for (;;) {
    const rows = await service.database.query<{ id: string; status: string }>(
      'select id, status from request_log where account_id = $1 order by id',
      [account.id],
    )
    if (rows.length >= count && rows.every(({ status }) => status !== 'held')) {
      return Promise.all(rows.map(({ id }) => getRow(service, account.apiKey, `req_${id.replaceAll('-', '')}`)))
    }
    await pause(2)
  }
}

export async function endedRow(service: TestService, account: TestAccount): Promise<RequestBody> {
  const [row] = await endedRows(service, account, 1)
  return row!
}

/** A request as the service has it. */
export type Arrival = {
  /** The service's end of the connection. */
  readonly socket: Socket
  /** Resolves when the service has the whole body. */
  readonly read: Promise<unknown>
}

/** The next completion that an account asks for, when it reaches the service. */
export function nextArrival(account: TestAccount): Promise<Arrival> {
  return new Promise((resolve) => {
    const listen = (message: unknown) => {
      const { request, socket } = message as { request: IncomingMessage; socket: Socket }
      if (request.headers.authorization !== `Bearer ${account.apiKey}`) return
      unsubscribe('http.server.request.start', listen)
      resolve({ socket, read: once(request, 'end') })
    }
    subscribe('http.server.request.start', listen)
  })
}
