// Reads a completion: the chunks of a streamed one as they come, a buffered one whole.

export type Chunk = {
  readonly choices?: readonly {
    readonly delta?: Words
    readonly finish_reason?: string | null
  }[]
  readonly error?: Failure
  readonly tool_activity?: {
    readonly type: string
    readonly status: string
    readonly query?: string
    readonly url?: string
  }
}

/** Text, or what the model says instead of it when it refuses. */
type Words = {
  readonly content?: string | null
  readonly refusal?: string | null
  readonly reasoning_content?: string | null
}

type Failure = { readonly message: string; readonly code: string }

/** A buffered answer. A slow one has its 200 before its end is known: an error then stands in its body. */
export type WholeAnswer = {
  readonly choices?: readonly { readonly message: Words }[]
  readonly error?: Failure
}

type Said = { readonly text: string; readonly reasoning: string }

export function readWhole({ choices, error }: WholeAnswer): Said {
  if (error !== undefined) throw new Error(error.message)
  return wordsOf(choices?.[0]?.message)
}

/** What one chunk adds. */
export function readChunk({ choices, error }: Chunk): Said {
  if (error !== undefined) throw new Error(error.message)
  return wordsOf(choices?.[0]?.delta)
}

function wordsOf(words: Words = {}): Said {
  return { text: words.content ?? words.refusal ?? '', reasoning: words.reasoning_content ?? '' }
}

const lineBytesMax = 4_000_000

/** Every `data:` line of the answer, parsed. Comments that only keep the line alive are passed over. */
export async function* readChunks(body: ReadableStream<Uint8Array>): AsyncGenerator<Chunk> {
  const reader = body.pipeThrough(new TextDecoderStream() as never).getReader() as ReadableStreamDefaultReader<string>
  let rest = ''
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    rest += value
    if (rest.length > lineBytesMax) throw new Error('The answer has a line that is too long.')
    const lines = rest.split(/\r?\n/)
    rest = lines.pop()!
    for (const line of lines) {
      const data = /^data: ?(.*)$/.exec(line)?.[1]
      if (data === undefined || data === '[DONE]') continue
      yield JSON.parse(data) as Chunk
    }
  }
}
