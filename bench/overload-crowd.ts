import { once } from 'node:events'
import { Agent, createServer, type IncomingMessage, request, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

// The other side of the overload bench, in its own process: the clients, which retry as the response asks, and the model.

export type CrowdReady = { readonly upstreamUrl: string }
export type CrowdOrder = { readonly origin: string; readonly apiKeys: readonly string[]; readonly clients: number }
export type CrowdResult = Awaited<ReturnType<typeof measure>>

const upstreamMs = 50
const measuredMs = 8_000
const warmUpMs = 2_000

const upstream = await startUpstream()
process.on('message', async (order: CrowdOrder) => void process.send?.(await measure(order)))
process.on('disconnect', () => process.exit(0))
process.send?.({ upstreamUrl: `http://127.0.0.1:${(upstream.address() as AddressInfo).port}/v1` } satisfies CrowdReady)

/** Answers every request with a few words after a while, as a model would if it cost nothing. */
async function startUpstream(): Promise<Server> {
  const events = [
    { type: 'response.created', response: { id: 'resp_1', status: 'in_progress' } },
    { type: 'response.output_text.delta', item_id: 'msg_1', output_index: 0, content_index: 0, delta: 'A few words.' },
    {
      type: 'response.completed',
      response: { id: 'resp_1', status: 'completed', usage: { input_tokens: 10, output_tokens: 5, total_tokens: 15 } },
    },
  ]
  const text = events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join('')
  const server = createServer(async (incoming, outgoing) => {
    incoming.resume()
    await sleep(upstreamMs)
    outgoing.writeHead(200, { 'content-type': 'text/event-stream' }).end(text)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return server
}

async function measure({ origin, apiKeys, clients }: CrowdOrder) {
  const agent = new Agent({ keepAlive: true, maxSockets: clients })
  const [served, shed]: [number[], number[]] = [[], []]
  const fromMs = performance.now() + warmUpMs
  const untilMs = fromMs + measuredMs
  const client = async (_: unknown, number: number) => {
    const apiKey = apiKeys[number % apiKeys.length]!
    while (performance.now() < untilMs) {
      const beganMs = performance.now()
      const { status, comeBackMs } = await ask(agent, origin, apiKey)
      if (beganMs >= fromMs) (status === 200 ? served : shed).push(performance.now() - beganMs)
      if (status !== 200 && status !== 503) throw new Error(`answered ${status}`)
      if (status === 503) await sleep(comeBackMs)
    }
  }
  await Promise.all(Array.from({ length: clients }, client))
  agent.destroy()
  return {
    answered_per_second: Math.round(served.length / (measuredMs / 1000)),
    shed_per_second: Math.round(shed.length / (measuredMs / 1000)),
    answered_p50_ms: quantile(served, 0.5),
    answered_p99_ms: quantile(served, 0.99),
    shed_p50_ms: quantile(shed, 0.5),
    shed_p99_ms: quantile(shed, 0.99),
  }
}

async function ask(agent: Agent, origin: string, apiKey: string): Promise<{ status: number; comeBackMs: number }> {
  const outgoing = request(`${origin.replace('localhost', '127.0.0.1')}/v1/chat/completions`, {
    method: 'POST',
    agent,
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
  })
  outgoing.end('{"messages":[{"role":"user","content":"What is a penny?"}],"max_tokens":100}')
  const [answer] = (await once(outgoing, 'response')) as [IncomingMessage]
  answer.resume()
  await once(answer, 'end')
  return { status: answer.statusCode!, comeBackMs: Number(answer.headers['retry-after-ms'] ?? 0) }
}

function quantile(values: number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  return Math.round(sorted[Math.floor(sorted.length * share)] ?? 0)
}
