import { useCallback, useRef, useState } from 'react'
import { request } from '../../api/call.ts'
import { readChunk, readChunks, readWhole, type WholeAnswer } from './chat-stream.ts'
import type { PlaygroundBody } from './playground-form.ts'

export type Run = {
  /** What was sent. The form goes on to the next call; its code, its price and its answer belong to this one. */
  readonly body: PlaygroundBody
  readonly state: 'running' | 'stopping' | 'ended' | 'failed'
  readonly requestId: string | undefined
  readonly text: string
  readonly reasoning: string
  readonly activity: readonly string[]
  readonly error: Error | undefined
}

type Completion = {
  readonly run: Run | undefined
  readonly send: (keyId: string, body: PlaygroundBody) => void
  readonly stop: () => void
}

/** The meter and the text are drawn at most four times a second: enough to be seen moving. */
const drawMs = 250

const notYet = {
  state: 'running',
  requestId: undefined,
  text: '',
  reasoning: '',
  activity: [],
  error: undefined,
} as const

/** One call at a time: its text as it comes, and a way to stop it. */
export function useCompletion(onEnded: (run: Run) => void): Completion {
  const [run, setRun] = useState<Run>()
  const controller = useRef<AbortController>(null)

  const send = useCallback(
    (keyId: string, body: PlaygroundBody) => {
      controller.current?.abort()
      const abort = new AbortController()
      controller.current = abort
      let now: Run = { body, ...notYet }
      let timer: ReturnType<typeof setTimeout> | undefined
      const draw = (change: Partial<Run>, at: 'once' | 'soon') => {
        now = { ...now, ...change }
        if (at === 'once') {
          clearTimeout(timer)
          timer = undefined
          setRun(now)
        } else timer ??= setTimeout(() => draw({}, 'once'), drawMs)
      }
      draw({}, 'once')
      void receive(keyId, body, abort.signal, (change) => draw(change(now), 'soon'))
        .then(() => draw({ state: 'ended' }, 'once'))
        .catch((error: unknown) => {
          if (abort.signal.aborted) draw({ state: 'ended' }, 'once')
          else draw({ state: 'failed', error: error instanceof Error ? error : new Error(String(error)) }, 'once')
        })
        .finally(() => onEnded(now))
    },
    [onEnded],
  )
  const stop = useCallback(() => {
    setRun((now) => now && { ...now, state: 'stopping' })
    controller.current?.abort()
  }, [])
  return { run, send, stop }
}

async function receive(
  keyId: string,
  body: PlaygroundBody,
  signal: AbortSignal,
  onChange: (change: (now: Run) => Partial<Run>) => void,
): Promise<void> {
  const response = await request('createPlaygroundCompletion', { body: { key_id: keyId, ...body } }, { signal })
  const requestId = response.headers.get('x-router-request-id') ?? undefined
  onChange(() => ({ requestId }))
  if (body.stream !== true) {
    const said = readWhole((await response.json()) as WholeAnswer)
    onChange(() => said)
    return
  }
  for await (const chunk of readChunks(response.body!)) {
    const { text, reasoning } = readChunk(chunk)
    const activity = chunk.tool_activity
    onChange((now) => ({
      text: now.text + text,
      reasoning: now.reasoning + reasoning,
      ...(activity !== undefined && { activity: [...now.activity, describe(activity)] }),
    }))
  }
}

function describe({
  type,
  status,
  query,
  url,
}: {
  type: string
  status: string
  query?: string
  url?: string
}): string {
  const what = type === 'web_search' ? `Search “${query ?? ''}”` : `Fetch ${url ?? ''}`
  return `${what}: ${status}`
}
