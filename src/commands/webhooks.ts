import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { allowsLoopbackWebhooks } from '../config/config.ts'
import { operatorActor, writeAccountLog } from '../db/account-log.ts'
import type { Database } from '../db/database.ts'
import { isUuid } from '../db/uuid.ts'
import { type EventType, eventTypes } from '../db/write-event.ts'
import type { Account } from '../ledger/accounts.ts'
import { parsePostUrl } from '../tools/safe-post.ts'
import { RefusedUrlError } from '../tools/untrusted-url.ts'
import { formatEventId, sendTest } from '../webhooks/deliveries.ts'
import {
  createEndpoint,
  type EndpointTerms,
  findEndpoint,
  listEndpoints,
  removeEndpoint,
  type WebhookEndpoint,
} from '../webhooks/endpoints.ts'
import { findForgery, formatSecret, parseSecret } from '../webhooks/signature.ts'
import { type Command, CommandError, type Invocation } from './command.ts'
import { findLogin } from './login-file.ts'
import { refuseRemote } from './remote.ts'
import { aborted, watchStopSignals } from './stop-signal.ts'
import { printRows } from './table.ts'
import { whichAccount } from './which-account.ts'
import { withDatabase } from './with-database.ts'

export const webhooksCommand: Command = {
  usage: [
    ['penny webhooks list', 'List the endpoints of an account'],
    ['penny webhooks add URL', 'Add an endpoint. Its secret is shown once'],
    ['--types TYPE,…', 'Types of events (default: all)'],
    ['--account ID|NAME', 'The account (default: the only account, or the demo account of the sandbox)'],
    ['penny webhooks remove ID', 'Remove an endpoint and its deliveries'],
    ['penny webhooks test ID', 'Send a test event'],
    [
      'penny webhooks listen',
      'Print events as they arrive, verified. In the sandbox it adds a temporary endpoint. Elsewhere, pass --secret and forward a public address to its port',
    ],
    ['--secret whsec_…', 'Verify messages of an endpoint that exists'],
    ['--port PORT', 'Port on this machine (default: any free port)'],
  ],
  options: {
    account: { type: 'string' },
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
    const login = findLogin(invocation.config)
    if (login !== undefined) refuseRemote(login, 'manage webhooks', '/settings')
    await withDatabase(invocation.config, async (database) => {
      const account = await whichAccount(database, invocation.options.account)
      await action(database, account, invocation)
    })
    return 0
  },
}

type Action = (database: Database, account: Account, invocation: Invocation) => Promise<void>

const actions: Readonly<Record<string, Action>> = { list, add, remove, test }

async function list(database: Database, account: Account, { output }: Invocation): Promise<void> {
  const endpoints = await listEndpoints(database, refOf(account))
  printRows(output, endpoints.map(describe), { omit: ['created_at', 'failing_since', 'types'] })
}

async function add(database: Database, account: Account, invocation: Invocation): Promise<void> {
  const { output, words } = invocation
  const types = readTypes(invocation)
  const url = readUrl(words[1], invocation)
  const { id, secret } = await createLogged(database, account, { url, types, description: '' })
  if (output.json) output.write(`${JSON.stringify({ id, secret: formatSecret(secret) })}\n`)
  else
    output.write(`${formatSecret(secret)}\n\nThis is the only time the secret is shown. The endpoint’s id is ${id}.\n`)
}

async function remove(database: Database, account: Account, { words, output }: Invocation): Promise<void> {
  const { id, url } = await whichEndpoint(database, account, words[1])
  await removeLogged(database, account, id)
  output.write(output.json ? `${JSON.stringify({ id, removed: true })}\n` : `Removed ${url} (${id}).\n`)
}

async function test(database: Database, account: Account, { words, output }: Invocation): Promise<void> {
  const endpoint = await whichEndpoint(database, account, words[1])
  const id = formatEventId((await sendTest(database, endpoint)).eventId)
  output.write(output.json ? `${JSON.stringify({ id })}\n` : `The running service sends ${id} to ${endpoint.url}.\n`)
}

/** Runs until Ctrl-C. */
async function listen(invocation: Invocation): Promise<number> {
  const { options, config, output } = invocation
  const port = readPort(options.port)
  const given = options.secret === undefined ? undefined : readSecret(String(options.secret))
  const types = readTypes(invocation)
  if (given === undefined && !allowsLoopbackWebhooks(config))
    throw new CommandError(
      'This service sends to public addresses only. Add an endpoint at a public address that forwards to this machine, then give its secret: penny webhooks listen --port PORT --secret whsec_…',
      2,
    )
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
    } else
      await withDatabase(config, async (database) => {
        const account = await whichAccount(database, options.account)
        const endpoint = await createLogged(database, account, { url, types, description: 'penny webhooks listen' })
        secret = endpoint.secret
        if (!output.json) output.write(`Listening on ${url} for events of ${account.name}. Ctrl-C ends it.\n`)
        await stopped
        await removeLogged(database, account, endpoint.id)
      })
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

function createLogged(database: Database, account: Account, terms: EndpointTerms): Promise<WebhookEndpoint> {
  return database.transaction(async (connection) => {
    const endpoint = await createEndpoint(connection, refOf(account), terms)
    const facts = { webhook_id: endpoint.id }
    await writeAccountLog(connection, refOf(account), { event: 'webhook_created', actor: operatorActor, facts })
    return endpoint
  })
}

function removeLogged(database: Database, account: Account, id: string): Promise<void> {
  return database.transaction(async (connection) => {
    await removeEndpoint(connection, refOf(account), id)
    const facts = { webhook_id: id }
    await writeAccountLog(connection, refOf(account), { event: 'webhook_removed', actor: operatorActor, facts })
  })
}

function refOf({ partition, id }: Account) {
  return { partition, accountId: id }
}

function describe(endpoint: WebhookEndpoint): Record<string, string | null> {
  return {
    id: endpoint.id,
    url: endpoint.url,
    status: endpoint.disabledReason === undefined ? 'enabled' : `disabled: ${endpoint.disabledReason}`,
    types: endpoint.types.join(','),
    failing_since: endpoint.failingSince?.toISOString() ?? null,
    created_at: endpoint.createdAt.toISOString(),
  }
}

async function whichEndpoint(database: Database, account: Account, id: string | undefined): Promise<WebhookEndpoint> {
  const isId = id !== undefined && isUuid(id.toLowerCase())
  const endpoint = isId ? await findEndpoint(database, refOf(account), id) : undefined
  if (endpoint !== undefined) return endpoint
  throw new CommandError('Which endpoint? Give its id; penny webhooks list shows it.', 2)
}

function readUrl(text: string | undefined, { config }: Invocation): string {
  if (text === undefined) throw new CommandError('Give the address: penny webhooks add https://…', 2)
  try {
    return parsePostUrl(text, allowsLoopbackWebhooks(config)).href
  } catch (error) {
    if (error instanceof RefusedUrlError) throw new CommandError(`${text} cannot be used: it ${error.rule}.`, 2)
    throw error
  }
}

function readTypes({ options }: Invocation): readonly EventType[] {
  if (options.types === undefined) return eventTypes
  const given = String(options.types).split(',')
  const wrong = given.find((type) => !eventTypes.includes(type as EventType))
  if (wrong === undefined) return given as EventType[]
  throw new CommandError(`There is no event type "${wrong}". The types are ${eventTypes.join(', ')}.`, 2)
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
