// Reads the chunks of a streamed completion as they come.

export type Chunk = {
  readonly choices?: readonly {
    readonly delta?: { readonly content?: string | null; readonly reasoning_content?: string | null }
    readonly finish_reason?: string | null
  }[]
  readonly error?: { readonly message: string; readonly code: string }
  readonly tool_activity?: {
    readonly type: string
    readonly status: string
    readonly query?: string
    readonly url?: string
  }
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
