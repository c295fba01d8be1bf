import { setTimeout as sleep } from 'node:timers/promises'
import { completed, created, startScriptedUpstream, text, type UpstreamExchange } from '../support/scripted-upstream.ts'
import { Random } from './random.ts'

/** The upstream's record of one request: what was generated, and when. */
export type Generated = {
  /** The digits of the request's id in the ledger: the service sends it as the cache key. */
  readonly digits: string
  readonly arrivedMs: number
  firstOutputMs: number | undefined
  /** When the last event was written. */
  finishedMs: number | undefined
  /** The service closed the connection before that. */
  hungUp: boolean
  tokens: number
}

/** The input tokens that the upstream reports for every completed answer. */
export const inputTokens = 10

/** Always one token, in any context. */
export const word = ' penny'

export type ModelUpstream = {
  readonly url: string
  /** By the request's `max_tokens`, which identifies it in these tests; several when the upstream was asked several times. */
  readonly generated: ReadonlyMap<number, readonly Generated[]>
  close(): Promise<void>
}

export type Pace = { readonly tokensMax: number; readonly tokenMs: number; readonly silenceMsMax: number }

/** A model whose answer to a request depends only on the seed and the request's name. */
export async function startModelUpstream(seed: number, pace: Pace): Promise<ModelUpstream> {
  const generated = new Map<number, Generated[]>()
  const upstream = await startScriptedUpstream(async (exchange) => {
    const name = Number(exchange.body.max_output_tokens)
    const entry: Generated = {
      digits: String(exchange.body.prompt_cache_key).replace('req_', ''),
      arrivedMs: Date.now(),
      firstOutputMs: undefined,
      finishedMs: undefined,
      hungUp: false,
      tokens: 0,
    }
    generated.set(name, [...(generated.get(name) ?? []), entry])
    await answer(exchange, entry, new Random(seed ^ Math.imul(name, 0x9e3779b1)), pace)
  })
  return { url: upstream.url, generated, close: () => upstream.close() }
}

async function answer(exchange: UpstreamExchange, entry: Generated, random: Random, pace: Pace): Promise<void> {
  const { outgoing } = exchange
  const tokens = random.between(1, pace.tokensMax)
  exchange.send(created)
  // Some begin immediately and some after a pause: faults must also hit the time between the hold and the first output.
  await sleep(random.chance(0.5) ? 0 : random.between(0, pace.silenceMsMax))
  while (entry.tokens < tokens && !outgoing.destroyed) {
    const piece = Math.min(random.between(1, 3), tokens - entry.tokens)
    entry.firstOutputMs ??= Date.now()
    entry.tokens += piece
    exchange.send(text(word.repeat(piece)))
    await sleep(pace.tokenMs * piece)
  }
  entry.hungUp = outgoing.destroyed
  if (entry.hungUp) return
  entry.finishedMs = Date.now()
  exchange.send(completed({ input_tokens: inputTokens, output_tokens: tokens, total_tokens: inputTokens + tokens }))
  exchange.end()
}
