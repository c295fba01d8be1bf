import { once } from 'node:events'
import { Agent, type IncomingMessage, request } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { chatBody } from './parts/chat-body.ts'
import { beChild } from './parts/child.ts'

// The customer of the hostile bench, in a process of its own: a few requests a second, each timed.

export type HonestOrder = {
  /** Ends in /v1. */
  readonly baseUrl: string
  readonly apiKey: string
  readonly durationMs: number
}

export type HonestReport = {
  readonly kinds: readonly {
    readonly name: string
    readonly p50Ms: number
    readonly p99Ms: number
    readonly answered: number
    /** Other statuses than 200, each with its count; empty when there was none. */
    readonly refused: string
  }[]
}

const pauseMs = 20
/** Long enough to be counted by the tokenizer. */
const article = 'A penny saved is a penny earned, as the saying goes, and many people still say so. '.repeat(100)

const kinds = [
  { name: 'short prompt', body: chatBody() },
  { name: 'prompt of 8 kB', body: chatBody({ messages: [{ role: 'user', content: article }] }) },
]

beChild<object, object, HonestOrder, HonestReport>(async () => ({ ready: {}, answer: ask }))

async function ask(order: HonestOrder): Promise<HonestReport> {
  return { kinds: await Promise.all(kinds.map((kind) => measure(kind, order))) }
}

async function measure({ name, body }: (typeof kinds)[number], { baseUrl, apiKey, durationMs }: HonestOrder) {
  const agent = new Agent({ keepAlive: true, maxSockets: 2 })
  const untilMs = performance.now() + durationMs
  const times: number[] = []
  const refused = new Map<number, number>()
  while (performance.now() < untilMs) {
    const beganMs = performance.now()
    const status = await send(agent, baseUrl, apiKey, body)
    times.push(performance.now() - beganMs)
    if (status !== 200) refused.set(status, (refused.get(status) ?? 0) + 1)
    await sleep(pauseMs)
  }
  agent.destroy()
  return {
    name,
    p50Ms: quantile(times, 0.5),
    p99Ms: quantile(times, 0.99),
    answered: times.length,
    refused: [...refused].map(([status, count]) => `${status}: ${count}`).join(', '),
  }
}

async function send(agent: Agent, baseUrl: string, apiKey: string, body: string): Promise<number> {
  const outgoing = request(`${baseUrl}/chat/completions`, {
    method: 'POST',
    agent,
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
  })
  outgoing.end(body)
  const [answer] = (await once(outgoing, 'response')) as [IncomingMessage]
  answer.resume()
  await once(answer, 'end')
  return answer.statusCode!
}

function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((one, other) => one - other)
  return Number((sorted[Math.floor(sorted.length * share)] ?? 0).toPrecision(3))
}
