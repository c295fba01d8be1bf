import { once } from 'node:events'
import { connect } from 'node:net'
import { Readable } from 'node:stream'
import { setTimeout as pause } from 'node:timers/promises'
import { Pool } from 'undici'
import { errorCodes } from '../../src/errors.ts'
import { type FuzzedRequest, fuzzedRequest } from './fuzzed-bodies.ts'
import type { TestAccount, TestService } from './service.ts'

export type FuzzOptions = {
  readonly seed: number
  readonly count: number
  readonly atOnce: number
}

export type FuzzResult = {
  /** How many answers there were, by what they said: `200`, `400 invalid_json`, …; `cut` for uploads that were given up. */
  readonly answers: Readonly<Record<string, number>>
  /** What no customer may ever see, with the number of the request that brought it about. */
  readonly problems: readonly string[]
}

// An account for so many requests: whatever becomes of one, the money of another is not what it is about.
const requestsPerAccount = 500
const problemsMax = 20

/** Sends requests that are more or less wrong, and judges every answer. */
export async function fuzz(service: TestService, { seed, count, atOnce }: FuzzOptions): Promise<FuzzResult> {
  const pool = new Pool(service.origin, { connections: atOnce, pipelining: 1 })
  const answers: Record<string, number> = {}
  const problems: string[] = []
  let next = 0
  async function work(): Promise<void> {
    let account: TestAccount | undefined
    for (let mine = 0; next < count && problems.length < problemsMax; mine += 1) {
      const number = next
      next += 1
      if (mine % requestsPerAccount === 0) account = await service.openAccount('25')
      const { kind, problem } = await tryOne(service, pool, account!, fuzzedRequest(seed, number))
      answers[kind] = (answers[kind] ?? 0) + 1
      if (problem !== undefined) problems.push(`request ${number} of seed ${seed}, ${kind}: ${problem}`)
    }
  }
  try {
    await Promise.all(Array.from({ length: atOnce }, work))
  } finally {
    await pool.destroy()
  }
  return { answers, problems }
}

type Verdict = { readonly kind: string; readonly problem: string | undefined }

async function tryOne(
  service: TestService,
  pool: Pool,
  account: TestAccount,
  request: FuzzedRequest,
): Promise<Verdict> {
  if (request.delivery === 'cut') {
    await giveUp(service, account, request)
    return { kind: 'cut', problem: undefined }
  }
  try {
    return judge(await send(pool, account, request))
  } catch (error) {
    return { kind: 'no answer', problem: String(error) }
  }
}

type Answer = { readonly status: number; readonly headers: NodeJS.Dict<string | string[]>; readonly text: string }

async function send(pool: Pool, account: TestAccount, { body, headers, delivery }: FuzzedRequest): Promise<Answer> {
  const middle = body.length >>> 1
  const answer = await pool.request({
    method: 'POST',
    path: '/v1/chat/completions',
    headers: { authorization: `Bearer ${account.apiKey}`, ...headers },
    body: delivery === 'chunked' ? Readable.from([body.subarray(0, middle), body.subarray(middle)]) : body,
  })
  return { status: answer.statusCode, headers: answer.headers, text: await answer.body.text() }
}

/** Announces the whole body, sends a part, and disconnects. */
async function giveUp(service: TestService, account: TestAccount, { body, headers }: FuzzedRequest): Promise<void> {
  const socket = connect(Number(new URL(service.origin).port), 'localhost')
  const lines = Object.entries({ ...headers, authorization: `Bearer ${account.apiKey}` }).map((line) => line.join(': '))
  socket.write(
    `POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: ${body.length + 1}\r\n${lines.join('\r\n')}\r\n\r\n`,
    'latin1',
  )
  socket.on('error', () => {})
  socket.end(body)
  socket.resume()
  await once(socket, 'close')
}

/** Every answer is a completion or a refusal that a program can read. */
function judge(answer: Answer): Verdict {
  const { status } = answer
  const id = answer.headers['x-router-request-id']
  if (!/^req_[0-9a-f]{32}$/.test(String(id))) return { kind: `${status}`, problem: `its request id is ${id}` }
  if (status === 200) return { kind: '200', problem: completionProblem(answer) }
  return judgeRefusal(answer, id)
}

function judgeRefusal({ status, text }: Answer, id: unknown): Verdict {
  const { error } = parse<{ error?: Record<string, unknown> }>(text) ?? {}
  const kind = `${status} ${error?.code}`
  const isClean =
    status >= 400 &&
    status < 500 &&
    errorCodes.some((code) => code === error?.code) &&
    typeof error?.message === 'string' &&
    typeof error.type === 'string' &&
    (error.param === null || typeof error.param === 'string') &&
    error.request_id === id
  return { kind, problem: isClean ? undefined : text.slice(0, 500) }
}

function completionProblem({ headers, text }: Answer): string | undefined {
  if (!String(headers['content-type']).startsWith('text/event-stream')) {
    return parse<{ object?: string }>(text)?.object === 'chat.completion' ? undefined : text.slice(0, 500)
  }
  const frames = text.split('\n\n')
  if (frames.pop() !== '' || frames.pop() !== 'data: [DONE]') return `it ends with ${text.slice(-500)}`
  return frames.find(
    (frame) => parse<{ object?: string }>(frame.slice('data: '.length))?.object !== 'chat.completion.chunk',
  )
}

function parse<Shape>(text: string): Shape | undefined {
  try {
    return JSON.parse(text) as Shape
  } catch {
    return undefined
  }
}

// Refusals are written into the log in the background, soon after they were sent.
const logMaxMs = 30_000

/** How many requests the log has, once it has as many as are expected, or will not have them. */
export async function loggedCount(
  service: TestService,
  { answers }: FuzzResult,
): Promise<{ logged: number; expected: number }> {
  const expected = Object.entries(answers).reduce(
    (sum, [kind, count]) => sum + (/^(200|400|402|404|422|429|50\d)\b/.test(kind) ? count : 0),
    0,
  )
  for (const deadline = Date.now() + logMaxMs; ; ) {
    // The hourly sums: beyond a hundred a minute, refusals of a key are only counted.
    const [row] = await service.database.query<{ count: bigint }>(
      'select coalesce(sum(succeeded + failed + cancelled + refused), 0)::bigint as count from usage_hours',
    )
    const logged = Number(row!.count)
    if (logged === expected || Date.now() > deadline) return { logged, expected }
    await pause(50)
  }
}
