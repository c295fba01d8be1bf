import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { eventTypes } from '../db/write-event.ts'
import type { AnswerOf } from '../openapi/contract.ts'
import { webhookContracts } from '../openapi/contracts/webhooks.ts'
import { findForgery, parseSecret } from '../webhooks/signature.ts'
import { accountOption, accountUsage, type Client, findClient } from './client.ts'
import { type Command, CommandError, type Invocation } from './command.ts'
import { namingOptions } from './fields.ts'
import { aborted, watchStopSignals } from './stop-signal.ts'
import { printRows } from './table.ts'

type Endpoint = AnswerOf<typeof webhookContracts.getWebhook>

export const webhooksCommand: Command = {
  usage: [
    ['penny webhooks list', 'List the endpoints of an account'],
    ['penny webhooks add URL', 'Add an endpoint. Its secret is shown once'],
    ['--types TYPE,…', 'Types of events (default: all)'],
    ['penny webhooks remove ID', 'Remove an endpoint and its deliveries'],
    ['penny webhooks test ID', 'Send a test event'],
    [
      'penny webhooks listen',
      'Print events as they arrive, verified. In the sandbox it adds a temporary endpoint. Elsewhere, pass --secret and forward a public address to its port',
    ],
    ['--secret whsec_…', 'Verify messages of an endpoint that exists'],
    ['--port PORT', 'Port on this machine (default: any free port)'],
    ...accountUsage,
  ],
  options: {
    ...accountOption,
    types: { type: 'string' },
    secret: { type: 'string' },
    port: { type: 'string' },
  },
  wordsMax: 2,
  async run(invocation) {
    const [verb = 'list'] = invocation.words
    if (verb === 'listen') return listen(invocation)
    const action = actions[verb]
    if (action === undefined)
      throw new CommandError(`penny webhooks has no verb "${verb}". It has: list, add, remove, test, listen.`, 2)
    await action(findClient(invocation), invocation)
    return 0
  },
}

type Action = (client: Client, invocation: Invocation) => Promise<void>

const actions: Readonly<Record<string, Action>> = { list, add, remove, test }

async function list(client: Client, { output }: Invocation): Promise<void> {
  const { data } = await client.call(webhookContracts.listWebhooks)
  printRows(output, data.map(describe), { omit: ['created_at', 'failing_since', 'types'] })
}

async function add(client: Client, invocation: Invocation): Promise<void> {
  const { output, words } = invocation
  if (words[1] === undefined) throw new CommandError('Give the address: penny webhooks add https://…', 2)
  const { id, secret } = await create(client, invocation, words[1])
  if (output.json) output.write(`${JSON.stringify({ id, secret })}\n`)
  else output.write(`${secret}\n\nThis is the only time the secret is shown. The endpoint’s id is ${id}.\n`)
}

async function remove(client: Client, { words, output }: Invocation): Promise<void> {
  const { id, url } = await whichEndpoint(client, words[1])
  await client.open(webhookContracts.removeWebhook, { parameters: { id } })
  output.write(output.json ? `${JSON.stringify({ id, removed: true })}\n` : `Removed ${url} (${id}).\n`)
}

async function test(client: Client, { words, output }: Invocation): Promise<void> {
  const { id: endpointId, url } = await whichEndpoint(client, words[1])
  const { id } = await client.call(webhookContracts.testWebhook, { parameters: { id: endpointId } })
  output.write(output.json ? `${JSON.stringify({ id })}\n` : `The running service sends ${id} to ${url}.\n`)
}

function create(client: Client, { options }: Invocation, url: string, description = '') {
  const types = typeof options.types === 'string' ? options.types.split(',') : eventTypes
  return namingOptions(
    { types: 'types' },
    client.call(webhookContracts.createWebhook, { body: { url, types, description } }),
  )
}

const forwarding =
  'A service that sends to public addresses only: add an endpoint at a public address that forwards to this machine, then give its secret: penny webhooks listen --port PORT --secret whsec_…'

/** Runs until Ctrl-C. */
async function listen(invocation: Invocation): Promise<number> {
  const { options, output } = invocation
  const port = readPort(options.port)
  const given = options.secret === undefined ? undefined : readSecret(String(options.secret))
  let secret = given
  const server = createServer((incoming, outgoing) => {
    receive(incoming, outgoing, () => secret, invocation).catch(() => outgoing.destroy())
  })
  await new Promise<void>((resolve, reject) => {
    server.on('error', (error) => reject(new CommandError(`Port ${port} cannot be used: ${error.message}`)))
    server.listen(port, '127.0.0.1', resolve)
  })
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
  const stopped = aborted(watchStopSignals().stop)
  try {
    if (given !== undefined) {
      if (!output.json) output.write(`Listening on ${url}. Ctrl-C ends it.\n`)
      await stopped
    } else {
      const client = findClient(invocation)
      const endpoint = await create(client, invocation, url, 'penny webhooks listen').catch((error: Error) => {
        throw new CommandError(`${error.message} ${forwarding}`, 2)
      })
      secret = readSecret(endpoint.secret)
      if (!output.json) output.write(`Listening on ${url} for events. Ctrl-C ends it.\n`)
      await stopped
      await client.open(webhookContracts.removeWebhook, { parameters: { id: endpoint.id } })
    }
  } finally {
    server.closeAllConnections()
    server.close()
  }
  return 0
}

const bodyBytesMax = 1024 * 1024

async function receive(
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  secret: () => Uint8Array | undefined,
  { output }: Invocation,
): Promise<void> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of incoming as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > bodyBytesMax) throw new Error('too large')
    chunks.push(chunk)
  }
  const body = Buffer.concat(chunks).toString()
  const known = secret()
  const forgery =
    known === undefined
      ? 'it came too early'
      : findForgery(known, incoming.headers, body, Math.floor(Date.now() / 1000))
  outgoing.writeHead(forgery === undefined ? 204 : 401).end()
  // Prints nothing from an unverified message.
  if (forgery !== undefined)
    output.write(output.json ? `${JSON.stringify({ refused: forgery })}\n` : `refused: ${forgery}\n`)
  else if (output.json) output.write(`${body}\n`)
  else {
    const { type, timestamp, data } = JSON.parse(body) as { type: string; timestamp: string; data: unknown }
    output.write(`${timestamp}  ${type.padEnd(20)} ${JSON.stringify(data)}\n`)
  }
}

function describe(endpoint: Endpoint): Record<string, string | null> {
  return {
    id: endpoint.id,
    url: endpoint.url,
    status: endpoint.disabled_reason === null ? 'enabled' : `disabled: ${endpoint.disabled_reason}`,
    types: endpoint.types.join(','),
    failing_since: endpoint.failing_since,
    created_at: endpoint.created_at,
  }
}

async function whichEndpoint(client: Client, id: string | undefined): Promise<Endpoint> {
  const { data } = await client.call(webhookContracts.listWebhooks)
  const endpoint = data.find((one) => one.id === id?.toLowerCase())
  if (endpoint !== undefined) return endpoint
  throw new CommandError('Which endpoint? Give its id; penny webhooks list shows it.', 2)
}

function readSecret(text: string): Buffer {
  const secret = parseSecret(text)
  if (secret === undefined) throw new CommandError('--secret must be the secret of an endpoint: whsec_…', 2)
  return secret
}

function readPort(text: string | boolean | undefined): number {
  const port = text === undefined ? 0 : Number(text)
  if (Number.isInteger(port) && port >= 0 && port <= 65_535) return port
  throw new CommandError(`--port must be a number up to 65535. Got "${text}".`, 2)
}
