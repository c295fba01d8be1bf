import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises'
import type { Ending } from './compose.ts'
import type { ServerEvent, Step } from './events.ts'

export type Pace = {
  /** 0 for as fast as the client reads. */
  readonly tokensPerSecond: number
  readonly firstTokenMs: number
}

/** The delivery of one answer to one client. */
export type Delivery = {
  readonly steps: Iterable<Step>
  readonly isStream: boolean
  /** The event as sent; empty for one that the protocol does not have. */
  readonly render: (event: ServerEvent) => string
  readonly pace: Pace
  readonly ending: Ending
  /** Counts tokens as they are produced, so that it is right however the delivery ends. */
  outputTokens: number
}

/** Without a pace, events are combined into writes of this size: a system call per token would be most of the cost. */
const writeLengthMax = 16_384

/** Sends events as they are produced, or the response at the end. Rejects when the client disconnects. */
export async function deliver(delivery: Delivery, response: ServerResponse, signal: AbortSignal): Promise<void> {
  if (delivery.isStream) {
    response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache' })
  }
  const waitMsFor = schedule(delivery.pace)
  let last: ServerEvent | undefined
  let pending = ''
  const flush = async () => {
    const isTaken = pending === '' || response.write(pending)
    pending = ''
    if (!isTaken) await once(response, 'drain', { signal })
  }
  for (const { token, event } of delivery.steps) {
    if (token) {
      const waitMs = waitMsFor(delivery.outputTokens)
      if (waitMs > 0) {
        await flush()
        await sleep(waitMs, undefined, { signal })
      }
      delivery.outputTokens += 1
    }
    last = event ?? last
    if (event !== undefined && delivery.isStream) pending += delivery.render(event)
    if (pending.length >= writeLengthMax) {
      await flush()
      // Yield to other clients, and let this one's disconnect be noticed.
      await nextTurn(undefined, { signal })
    }
  }
  await flush()
  await finish(delivery, last, response, signal)
}

async function finish(
  { ending, isStream }: Delivery,
  last: ServerEvent | undefined,
  response: ServerResponse,
  signal: AbortSignal,
): Promise<void> {
  if (ending === 'stall') {
    await once(signal, 'abort')
    signal.throwIfAborted()
  }
  if (ending === 'cut') {
    // This write's callback runs after all earlier ones: the client must receive everything up to the cut.
    if (isStream) await new Promise((resolve) => response.write('', resolve))
    response.destroy()
    return
  }
  response.end(isStream || ending === 'end' ? '' : wholeBody(last, response))
}

/** The body of a buffered answer. An `error` event, which only streams have, becomes a server error. */
function wholeBody(last: ServerEvent | undefined, response: ServerResponse): string {
  response.setHeader('content-type', 'application/json')
  if (last?.type !== 'error') return JSON.stringify(last?.response)
  response.statusCode = 500
  return JSON.stringify({ error: { message: last.message, type: 'server_error', param: null, code: last.code } })
}

/** How long to wait before the n-th token, from a fixed schedule: delays of timers do not accumulate. */
function schedule(pace: Pace): (token: number) => number {
  const start = performance.now()
  const intervalMs = pace.tokensPerSecond > 0 ? 1000 / pace.tokensPerSecond : 0
  return (token) => {
    if (intervalMs === 0 && token > 0) return 0
    return Math.ceil(start + pace.firstTokenMs + token * intervalMs - performance.now())
  }
}
