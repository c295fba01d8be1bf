import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import type { ModelRequest } from '../../src/providers/model-request.ts'

/** A question like any other. */
export const modelRequest: ModelRequest = {
  instructions: '',
  messages: [{ role: 'user', content: 'Hi' }],
  turns: [],
  tools: [],
  toolChoice: 'auto',
  parallelToolCalls: undefined,
  responseFormat: { type: 'text' },
  reasoningEffort: 'low',
  temperature: undefined,
  maxOutputTokens: 100,
  promptCacheKey: 'key',
}

const readPollMs = 20
// Nothing outside the service shows that it has handled what it read.
const readMs = 300
const readProbes = 3

/** One request as an upstream sees it, and the means to answer it as badly as the test wants. */
export type UpstreamExchange = {
  readonly body: Record<string, unknown>
  readonly incoming: IncomingMessage
  readonly outgoing: ServerResponse
  /** Resolves when the other side has hung up. */
  readonly hungUp: Promise<void>
  /** Writes events of the Responses API; headers first. */
  send(...events: readonly object[]): void
  end(): void
  /** Resolves when a service in this process has read what was sent, and had time to handle it. */
  read(): Promise<void>
}

export type ScriptedUpstream = {
  /** Ends in /v1. */
  readonly url: string
  /** Every request that has come, in order. */
  readonly exchanges: readonly UpstreamExchange[]
  /** What to do with the next requests. */
  answer: (exchange: UpstreamExchange) => void | Promise<void>
  /** The status that probes are answered with. */
  probeStatus: number
  /** The models that it lists. */
  models: readonly string[]
  close(): Promise<void>
}

/** An upstream that does what the test says. */
export async function startScriptedUpstream(answer: ScriptedUpstream['answer'] = () => {}): Promise<ScriptedUpstream> {
  const exchanges: UpstreamExchange[] = []
  const server = createServer(async (incoming, outgoing) => {
    // A probe of the router: it is no question, and is answered while the server is there.
    if (incoming.method === 'GET') {
      const data = upstream.models.map((id) => ({ id }))
      return void outgoing.writeHead(upstream.probeStatus).end(JSON.stringify({ data }))
    }
    const exchange = await open(incoming, outgoing, () => fetch(`${upstream.url}/models`))
    exchanges.push(exchange)
    await upstream.answer(exchange)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const upstream: ScriptedUpstream = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    exchanges,
    answer,
    probeStatus: 200,
    models: [],
    async close() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
  return upstream
}

async function open(
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  probe: () => Promise<Response>,
): Promise<UpstreamExchange> {
  const hungUp = new Promise<void>((resolve) => outgoing.once('close', resolve))
  const chunks: Buffer[] = []
  for await (const chunk of incoming) chunks.push(chunk as Buffer)
  return {
    body: JSON.parse(Buffer.concat(chunks).toString('utf8')),
    incoming,
    outgoing,
    hungUp,
    send(...events) {
      if (!outgoing.headersSent) outgoing.writeHead(200, { 'content-type': 'text/event-stream' })
      for (const event of events)
        outgoing.write(`event: ${(event as { type: string }).type}\ndata: ${JSON.stringify(event)}\n\n`)
    },
    end: () => void outgoing.end(),
    async read() {
      while (outgoing.writableLength > 0) await pause(readPollMs)
      await pause(readMs)
      // A machine that stood still for that time has read nothing. A probe that is answered has made this process read its sockets.
      for (let count = 0; count < readProbes; count += 1) await (await probe()).arrayBuffer()
    },
  }
}

/** These events, and the end. */
export function answers(...events: readonly object[]): ScriptedUpstream['answer'] {
  return (exchange) => {
    exchange.send(...events)
    exchange.end()
  }
}

export type Turn = readonly object[] | ((exchange: UpstreamExchange) => void)

/** One answer after another; each reports the same usage unless it ends itself. */
export function inTurn(turns: readonly Turn[], usage?: object): ScriptedUpstream['answer'] {
  const left = [...turns]
  return (exchange) => {
    const turn = left.shift() ?? []
    if (typeof turn === 'function') return turn(exchange)
    exchange.send(...turn, completed(usage))
    exchange.end()
  }
}

export const created = { type: 'response.created', response: { id: 'resp_1', status: 'in_progress' } }

export function text(delta: string): object {
  return { type: 'response.output_text.delta', item_id: 'msg_1', output_index: 0, content_index: 0, delta }
}

export function reasoning(delta: string): object {
  return { type: 'response.reasoning_summary_text.delta', item_id: 'rs_1', output_index: 0, summary_index: 0, delta }
}

export function completed(usage: unknown = { input_tokens: 10, output_tokens: 5, total_tokens: 15 }): object {
  return {
    type: 'response.completed',
    response: { id: 'resp_1', status: 'completed', ...(usage !== undefined && { usage }) },
  }
}

export function incomplete(
  reason: string,
  usage: unknown = { input_tokens: 10, output_tokens: 5, total_tokens: 15 },
): object {
  return {
    type: 'response.incomplete',
    response: { id: 'resp_1', status: 'incomplete', incomplete_details: { reason }, usage },
  }
}

export function failedEvent(code = 'server_error'): object {
  return {
    type: 'response.failed',
    response: { id: 'resp_1', status: 'failed', error: { code, message: 'It broke.' } },
  }
}

/** A whole call of a function: its item opens, its arguments come, its item closes. */
export function functionCall(name: string, given: object | string, output_index = 0): object[] {
  const item_id = `fc_${output_index}`
  const text = typeof given === 'string' ? given : JSON.stringify(given)
  const item = { type: 'function_call', id: item_id, call_id: `call_${output_index}`, name, arguments: text }
  return [
    { type: 'response.output_item.added', output_index, item: { ...item, arguments: '' } },
    { type: 'response.function_call_arguments.delta', item_id, output_index, delta: text },
    { type: 'response.output_item.done', output_index, item },
  ]
}
