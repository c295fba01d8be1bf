// Reads a completion: the chunks of a streamed one as they come, a buffered one whole.

/** One piece of a tool call. Pieces of the same index belong together. */
type ToolCallDelta = {
  readonly index?: number
  readonly id?: string
  readonly function?: { readonly name?: string; readonly arguments?: string }
}

/** Text, or the model's refusal. */
type Words = {
  readonly content?: string | null
  readonly refusal?: string | null
  readonly reasoning_content?: string | null
  readonly tool_calls?: readonly ToolCallDelta[] | null
}

type Failure = { readonly message: string; readonly code: string }

export type ToolActivity = {
  readonly type: string
  readonly status: string
  readonly call: number
  readonly query?: string
  readonly url?: string
}

export type Chunk = {
  readonly choices?: readonly { readonly delta?: Words; readonly finish_reason?: string | null }[]
  readonly error?: Failure
  readonly tool_activity?: ToolActivity
  readonly running_cost?: {
    readonly cost_atomic: string
    readonly prompt_tokens: number
    readonly completion_tokens: number
  }
}

/** A buffered answer. A slow one has its 200 before its end is known: an error is then in its body. */
export type WholeAnswer = {
  readonly choices?: readonly { readonly message: Words; readonly finish_reason?: string | null }[]
  readonly error?: Failure
}

/** An addition to an answer. */
export type Said = {
  readonly text: string
  readonly reasoning: string
  readonly toolCalls: readonly ToolCallDelta[]
  readonly finishReason: string | undefined
}

export function readWhole({ choices, error }: WholeAnswer): Said {
  if (error !== undefined) throw new AnswerFailedError(error)
  const choice = choices?.[0]
  return said(choice?.message, choice?.finish_reason)
}

/** The addition of one chunk. */
export function readChunk({ choices, error }: Chunk): Said {
  if (error !== undefined) throw new AnswerFailedError(error)
  const choice = choices?.[0]
  return said(choice?.delta, choice?.finish_reason)
}

function said(words: Words = {}, finishReason: string | null | undefined): Said {
  return {
    text: words.content ?? words.refusal ?? '',
    reasoning: words.reasoning_content ?? '',
    toolCalls: words.tool_calls ?? [],
    finishReason: finishReason ?? undefined,
  }
}

type Call = { readonly id: string; readonly name: string; readonly arguments: string; readonly result: string }

/** The calls so far with the next pieces added. */
export function addToolCalls(calls: readonly Call[], deltas: readonly ToolCallDelta[]): readonly Call[] {
  if (deltas.length === 0) return calls
  const next = [...calls]
  for (const [at, delta] of deltas.entries()) {
    const index = delta.index ?? at
    const now = next[index] ?? { id: '', name: '', arguments: '', result: '' }
    next[index] = {
      ...now,
      id: delta.id ?? now.id,
      name: delta.function?.name ?? now.name,
      arguments: now.arguments + (delta.function?.arguments ?? ''),
    }
  }
  return next
}

const lineLengthMax = 4_000_000

/**
 * Every `data:` line of the answer until `[DONE]`, parsed. Comments that keep the connection alive are skipped. A proxy can end a
 * cut-off answer without an error: only `[DONE]` says that the answer is complete.
 */
export async function* readChunks(body: ReadableStream<Uint8Array>): AsyncGenerator<Chunk> {
  const reader = body.pipeThrough(new TextDecoderStream() as never).getReader() as ReadableStreamDefaultReader<string>
  let rest = ''
  for (;;) {
    const { done, value } = await reader.read()
    if (done) throw new StreamCutError()
    rest += value
    if (rest.length > lineLengthMax) throw new Error('A line of the answer is longer than 4 MB.')
    const lines = rest.split(/\r?\n/)
    rest = lines.pop()!
    for (const line of lines) {
      const data = /^data: ?(.*)$/.exec(line)?.[1]
      if (data === '[DONE]') return
      if (data === undefined) continue
      yield JSON.parse(data) as Chunk
    }
  }
}

/** The stream ended before its answer did. */
export class StreamCutError extends Error {
  constructor() {
    super('The connection was closed before the answer was complete.')
    this.name = 'StreamCutError'
  }
}

/** The service reported an error after it had sent the status 200. */
export class AnswerFailedError extends Error {
  readonly code: string

  constructor({ message, code }: Failure) {
    super(message)
    this.name = 'AnswerFailedError'
    this.code = code
  }
}
