import { loadOpenAiValidators } from '../support/openai-schemas.ts'
import type { Exchange } from './tap.ts'

// Rules for every answer, whatever the client: each suite checks all of its exchanges against them.

const validators = loadOpenAiValidators()

/** The problems of an answer; none when it keeps every rule. */
export function problemsOf(exchange: Exchange): string[] {
  // A client that left before an answer began was not answered.
  if (exchange.status === 0) return []
  const problems = exchange.headers['content-type']?.startsWith('text/event-stream')
    ? streamProblems(exchange)
    : bodyProblems(exchange)
  // A broken rule is usually broken in every chunk: report it once.
  return [...new Set([...headerProblems(exchange), ...problems])].map((problem) => `${exchange.path}: ${problem}`)
}

function headerProblems({ headers, status }: Exchange): string[] {
  return failed({
    'x-router-request-id is a request id': /^req_[0-9a-f]{32}$/.test(headers['x-router-request-id'] ?? ''),
    'x-request-id is the same': headers['x-request-id'] === headers['x-router-request-id'],
    'any page may read it': headers['access-control-allow-origin'] === '*',
    'no credentials are allowed': headers['access-control-allow-credentials'] === undefined,
    'its own headers are exposed': /x-router-request-id.*x-request-id/.test(
      headers['access-control-expose-headers'] ?? '',
    ),
    'the held amount is atomic': /^\d+$/.test(headers['x-router-held-usdc'] ?? '0'),
    'the charged amount is atomic': /^\d+$/.test(headers['x-router-charged-usdc'] ?? '0'),
    'www-authenticate is on a 401 and nowhere else': (status === 401) === 'www-authenticate' in headers,
    'a wait is at most a minute': Number(headers['retry-after'] ?? 0) <= 60,
    'both waits come together': 'retry-after' in headers === 'retry-after-ms' in headers,
    'a refusal that waiting cannot cure says so':
      status < 400 || status >= 429 || status === 408 || headers['x-should-retry'] === 'false',
  })
}

function bodyProblems(exchange: Exchange): string[] {
  const { text, status, path, headers, isWhole } = exchange
  if (!isWhole) return []
  const body = JSON.parse(text)
  if (status >= 400 || 'error' in body) return errorProblems(exchange, body)
  if (path === '/v1/models') return [...validators.modelList(body)]
  if (path.startsWith('/v1/models/')) return [...validators.model(body)]
  return [
    ...validators.completion(body),
    ...failed({
      'its id has the digits of the request': body.id === completionId(headers),
      'the fingerprint is a string': typeof body.system_fingerprint === 'string',
      'what was held is told': 'x-router-held-usdc' in headers,
      // White space before the body means that the headers had to leave before the charge was known.
      'what was charged is told': 'x-router-charged-usdc' in headers || text.startsWith(' '),
      'no list is null': !hasNullList(body),
    }),
  ]
}

function errorProblems({ headers, requestBody, status }: Exchange, body: { error: { request_id?: string } }): string[] {
  const isVoided = 'x-router-held-usdc' in headers && requestBody.stream !== true && status !== 200
  return [
    ...validators.error(body),
    ...failed({
      'the error names the request': body.error.request_id === headers['x-router-request-id'],
      'a buffered error is free': !isVoided || headers['x-router-charged-usdc'] === '0',
    }),
  ]
}

function completionId(headers: Exchange['headers']): string | undefined {
  return headers['x-router-request-id']?.replace('req_', 'chatcmpl-')
}

/** The members of a chunk that the rules and the tests look at. */
export type Chunk = {
  readonly id: string
  readonly created: number
  readonly model: string
  readonly system_fingerprint: unknown
  readonly usage?: Readonly<Record<string, unknown>> | null
  readonly choices: readonly {
    readonly delta: {
      readonly role?: string
      readonly content?: string
      readonly refusal?: string
      readonly reasoning_content?: string
      readonly reasoning?: string
      readonly annotations?: readonly unknown[]
      readonly tool_calls?: readonly ToolCallDelta[]
    }
    readonly finish_reason: string | null
  }[]
}

type ToolCallDelta = {
  readonly index: number
  readonly id?: string
  readonly type?: string
  readonly function?: { readonly name?: string; readonly arguments?: string }
}

export type EventStreamText = {
  readonly chunks: readonly Chunk[]
  readonly error: { readonly code: string } | undefined
  readonly isDone: boolean
  readonly commentCount: number
  readonly problems: readonly string[]
}

/** Reads an event stream the strict way: a line is data, a comment or empty, an event one line of data. */
export function readEventStream(text: string): EventStreamText {
  // What follows the last empty line is an event that a leaving client did not wait for.
  const blocks = text
    .slice(0, text.lastIndexOf('\n\n') + 2)
    .split('\n\n')
    .slice(0, -1)
  const comments = blocks.filter((block) => block.startsWith(':'))
  const data = blocks.filter((block) => !block.startsWith(':'))
  const frames = data.flatMap((block) => /^data: ([^\n\r]+)$/.exec(block)?.[1] ?? [])
  const isDone = frames.includes('[DONE]')
  const values = frames.filter((frame) => frame !== '[DONE]').map((frame): Chunk => JSON.parse(frame))
  const errors = values.filter((value) => 'error' in value) as unknown as { error: { code: string } }[]
  return {
    chunks: values.filter((value) => !('error' in value)),
    error: errors[0]?.error,
    isDone,
    commentCount: comments.length,
    problems: [
      ...failed({
        'every event is one line of data': frames.length === data.length,
        'nothing follows [DONE]': !isDone || frames.indexOf('[DONE]') === frames.length - 1,
        'an error is the last event': errors.length === 0 || (errors.length === 1 && 'error' in values.at(-1)!),
        'an error is not followed by [DONE]': errors.length === 0 || !isDone,
        'an error has no choices': errors.every((error) => !('choices' in error)),
      }),
      ...errors.flatMap((error) => validators.error(error)),
    ],
  }
}

/** OpenAI's way to ask for the usage chunk, and OpenRouter's. */
type UsageOptions = {
  readonly stream_options?: { readonly include_usage?: boolean }
  readonly usage?: { readonly include?: boolean }
}

function streamProblems(exchange: Exchange): string[] {
  const { headers, requestBody, isWhole } = exchange
  const stream = readEventStream(exchange.text)
  const { chunks, error } = stream
  const { stream_options, usage } = requestBody as UsageOptions
  const includeUsage = stream_options?.include_usage === true || usage?.include === true
  return [
    ...stream.problems,
    ...chunks.flatMap((chunk) => validators.chunk(chunk)),
    ...failed({
      'it is an event stream in UTF-8': headers['content-type'] === 'text/event-stream; charset=utf-8',
      'no cache keeps it': headers['cache-control'] === 'no-cache',
      'no proxy buffers it': headers['x-accel-buffering'] === 'no',
      'it is not compressed': !('content-encoding' in headers),
      'what was held is told': 'x-router-held-usdc' in headers,
      'what was charged cannot be known': !('x-router-charged-usdc' in headers),
      'the first chunk has the role': chunks.length === 0 || chunks[0]!.choices[0]?.delta.role === 'assistant',
      'no other chunk has it': !deltas(chunks.slice(1)).some((delta) => 'role' in delta),
      'all chunks are of one completion':
        new Set(chunks.map(({ id, created, model }) => `${id} ${created} ${model}`)).size <= 1,
      'its id has the digits of the request': chunks.every(({ id }) => id === completionId(headers)),
      'the fingerprint is a string': chunks.every((chunk) => typeof chunk.system_fingerprint === 'string'),
      'no list is null': !hasNullList(chunks),
    }),
    ...(isWhole && error === undefined ? endProblems(stream, includeUsage) : []),
    ...toolCallProblems(chunks),
  ]
}

/** The end of a whole stream: the reason, then usage if it was asked for, then [DONE]. */
function endProblems({ chunks, isDone }: EventStreamText, includeUsage: boolean): string[] {
  const finishes = chunks.filter((chunk) => chunk.choices[0]?.finish_reason != null)
  const usages = chunks.filter((chunk) => chunk.usage != null)
  return failed({
    'it ends with [DONE]': isDone,
    'one chunk has a finish reason': finishes.length === 1,
    'that is the last chunk, but for usage': finishes[0] === chunks.at(includeUsage ? -2 : -1),
    'usage is there when asked for': usages.length === (includeUsage ? 1 : 0),
    'usage has a chunk of its own at the end':
      !includeUsage || (usages[0] === chunks.at(-1) && usages[0]?.choices.length === 0),
    'other chunks have no usage key': chunks
      .filter((chunk) => chunk !== usages[0])
      .every((chunk) => !('usage' in chunk)),
  })
}

/** Clients join calls by their index: names come once, in order, and no call is interrupted by another. */
function toolCallProblems(chunks: readonly Chunk[]): string[] {
  const pieces = deltas(chunks).flatMap((delta) => delta.tool_calls ?? [])
  const openings = pieces.filter((piece) => piece.id !== undefined)
  return failed({
    'calls are told one after the other': pieces.every(
      (piece, position) => position === 0 || piece.index >= pieces[position - 1]!.index,
    ),
    'a call is opened once, in order': openings.every((piece, position) => piece.index === position),
    'a call opens with id, type and name': openings.every((piece) => piece.type === 'function' && piece.function?.name),
    'arguments are always a string': pieces.every((piece) => typeof piece.function?.arguments === 'string'),
    'later pieces have arguments only': pieces.every(
      (piece) => piece.id !== undefined || !('type' in piece || 'name' in piece.function!),
    ),
  })
}

function deltas(chunks: readonly Chunk[]) {
  return chunks.flatMap((chunk) => chunk.choices.map((choice) => choice.delta))
}

function hasNullList(value: unknown): boolean {
  return /"(tool_calls|annotations|function_call)":(null|\[\])/.test(JSON.stringify(value))
}

/** The names of the rules that do not hold. */
function failed(rules: Readonly<Record<string, unknown>>): string[] {
  return Object.entries(rules).flatMap(([rule, holds]) => (holds ? [] : [`not true: ${rule}`]))
}
