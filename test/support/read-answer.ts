import type { ChatEvent } from '../../src/inference/chat-events.ts'
import type { ModelRequest } from '../../src/providers/model-request.ts'
import type { AskOptions, Upstream } from '../../src/providers/upstream.ts'

export type AnswerEvents = AsyncIterable<readonly ChatEvent[]>

/** Asks an upstream as a reader that takes each read when it wants it. Resolves when the upstream accepts, and rejects when it does not. */
export function respond(
  upstream: Upstream,
  request: ModelRequest,
  signal: AbortSignal,
  options: AskOptions,
): Promise<AnswerEvents> {
  const head = Promise.withResolvers<AnswerEvents>()
  const reads: (readonly ChatEvent[])[] = []
  let come = Promise.withResolvers<void>()
  let taken = Promise.withResolvers<void>()
  if (signal.aborted) return Promise.reject(signal.reason)
  const sink = {
    onAccepted: () => head.resolve(events()),
    onEvents(read: readonly ChatEvent[]) {
      reads.push(read)
      taken = Promise.withResolvers()
      come.resolve()
      return taken.promise
    },
    onRefused: (error: unknown) => head.reject(error),
  }
  let call: ReturnType<Upstream['ask']>
  try {
    call = upstream.ask(request, 'm', sink, options)
  } catch (error) {
    return Promise.reject(error)
  }
  signal.addEventListener('abort', () => {
    call.stop()
    come.resolve()
    head.reject(signal.reason)
  })
  async function* events(): AsyncGenerator<readonly ChatEvent[], void, undefined> {
    try {
      for (;;) {
        if (reads.length === 0) await come.promise
        if (signal.aborted) throw signal.reason
        const read = reads.shift()!
        come = Promise.withResolvers()
        yield read
        taken.resolve()
        const last = read.at(-1)?.type
        if (last === 'finish' || last === 'failed') return
      }
    } finally {
      call.stop()
    }
  }
  return head.promise
}
