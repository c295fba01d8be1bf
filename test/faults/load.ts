import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Database } from '../../src/db/database.ts'
import { createKey } from '../../src/identity/api-keys.ts'
import { type Account, createAccount } from '../../src/ledger/accounts.ts'
import { creditDeposit } from '../../src/ledger/deposits.ts'
import { parse } from '../../src/money/usdc.ts'
import { withoutTools } from '../support/service.ts'
import type { Seen } from './history.ts'
import { word } from './model-upstream.ts'
import type { Random } from './random.ts'

/** Where to send a request, and the process that answers there, directly or through a proxy. */
export type Address = { readonly port: number; readonly node: string; readonly proxied: boolean }

export type LoadOptions = {
  readonly random: Random
  readonly apiKeys: readonly string[]
  /** A node that accepts requests; undefined while there is none. */
  readonly address: (random: Random) => Address | undefined
  /** How long the model takes per token: the time unit for clients that hang up early. */
  readonly tokenMs: number
}

export type TestAccounts = { readonly accountIds: readonly string[]; readonly apiKeys: readonly string[] }

/** Few accounts, so that requests compete for them; one key per client. */
export async function openAccounts(database: Database, clients: number, partitions = 1): Promise<TestAccounts> {
  const accounts = [await openAccount(database, partitions), await openAccount(database, partitions)]
  const apiKeys = Array.from({ length: clients }, async (_, index) => {
    const { partition, id: accountId } = accounts[index % accounts.length]!
    return (await createKey(database, { partition, accountId, name: `client ${index}` })).secret
  })
  return { accountIds: accounts.map(({ id }) => id), apiKeys: await Promise.all(apiKeys) }
}

async function openAccount(database: Database, partitions: number): Promise<Account> {
  const account = await createAccount(database, 'faults', partitions)
  await creditDeposit(database, { ...account, accountId: account.id, amount: parse('1000'), source: 'test' })
  return account
}

// Above the upstream's minimum, and above the length of any generated answer.
const firstName = 1_000
// How long a client waits after a refusal, or when no node accepts requests.
const pauseMs = 50

/** Clients that send one request after another, each with its own key, and record everything they see. */
export class Load {
  readonly seen: Seen[] = []
  readonly #options: LoadOptions
  readonly #clients: Promise<void>[]
  #nextName = firstName
  #stopped = false

  constructor(options: LoadOptions) {
    this.#options = options
    this.#clients = options.apiKeys.map((apiKey) => this.#ask(apiKey, options.random.branch()))
  }

  /** Doubles the clients, with the same keys: the current ones may all be waiting for their answers. */
  join(): void {
    const { apiKeys, random } = this.#options
    this.#clients.push(...apiKeys.map((apiKey) => this.#ask(apiKey, random.branch())))
  }

  /** Resolves when every client has finished its last request. */
  async stop(): Promise<void> {
    this.#stopped = true
    await Promise.all(this.#clients)
  }

  async #ask(apiKey: string, random: Random): Promise<void> {
    while (!this.#stopped) {
      const address = this.#options.address(random)
      const isAnswered = address !== undefined && (await this.#askOnce(apiKey, address, random))
      if (!isAnswered) await sleep(pauseMs)
    }
  }

  async #askOnce(apiKey: string, { port, node, proxied }: Address, random: Random): Promise<boolean> {
    const seen: Seen = {
      // The ledger stores it and the upstream receives it: it identifies the request on all three sides.
      name: this.#nextName++,
      stream: random.chance(0.7),
      hangUpAfterMs: random.chance(0.15) ? random.between(0, 30) * this.#options.tokenMs : undefined,
      node,
      proxied,
      sentMs: Date.now(),
      closedMs: undefined,
      status: undefined,
      requestId: undefined,
      tokens: 0,
      whole: false,
      cost: undefined,
      error: undefined,
      left: false,
    }
    this.seen.push(seen)
    try {
      await ask(seen, apiKey, port)
    } catch {
      // The connection broke. Everything received until then is recorded.
    }
    seen.closedMs = Date.now()
    return seen.whole
  }
}

/** One request by plain HTTP. */
async function ask(seen: Seen, apiKey: string, port: number): Promise<void> {
  const outgoing = request({
    host: '127.0.0.1',
    port,
    path: '/v1/chat/completions',
    method: 'POST',
    agent: false,
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
  })
  const leave = () => {
    seen.left = true
    outgoing.destroy()
  }
  const timer = seen.hangUpAfterMs === undefined ? undefined : setTimeout(leave, seen.hangUpAfterMs)
  outgoing.on('error', () => {})
  outgoing.end(
    JSON.stringify({
      messages: [{ role: 'user', content: 'Say penny.' }],
      max_tokens: seen.name,
      stream: seen.stream,
      stream_options: { include_usage: true },
      ...withoutTools,
    }),
  )
  try {
    const closed = once(outgoing, 'close').then(() => Promise.reject(new Error('no answer')))
    const [incoming] = (await Promise.race([once(outgoing, 'response'), closed])) as [IncomingMessage]
    seen.status = incoming.statusCode
    seen.requestId = String(incoming.headers['x-router-request-id'])
    if (incoming.headers['content-type']?.startsWith('text/event-stream') === true) await readStream(seen, incoming)
    else await readBody(seen, incoming)
  } finally {
    clearTimeout(timer)
  }
}

async function readStream(seen: Seen, incoming: IncomingMessage): Promise<void> {
  let rest = ''
  for await (const text of incoming.setEncoding('utf8')) {
    const frames = (rest + text).split('\n\n')
    rest = frames.pop()!
    for (const frame of frames) readFrame(seen, frame)
  }
}

function readFrame(seen: Seen, frame: string): void {
  if (frame === 'data: [DONE]') seen.whole = true
  if (!frame.startsWith('data: {')) return
  const chunk = JSON.parse(frame.slice('data: '.length)) as Chunk
  seen.tokens += wordsIn(chunk.choices?.[0]?.delta?.content ?? '')
  if (chunk.usage != null) seen.cost = atomic(chunk.usage.cost)
  if (chunk.error !== undefined) seen.error = chunk.error.code
}

async function readBody(seen: Seen, incoming: IncomingMessage): Promise<void> {
  let text = ''
  for await (const piece of incoming.setEncoding('utf8')) text += piece
  const body = JSON.parse(text) as Body
  if (body.error !== undefined) {
    seen.error = body.error.code
    return
  }
  seen.tokens = wordsIn(body.choices[0].message.content)
  seen.cost = BigInt(String(incoming.headers['x-router-charged-usdc']))
  if (seen.cost !== atomic(body.usage.cost))
    throw new Error(`header and body of ${seen.requestId} tell different costs`)
  seen.whole = true
}

function wordsIn(content: string): number {
  return content.length / word.length
}

function atomic(cost: number): bigint {
  return BigInt(Math.round(cost * 1_000_000))
}

type Problem = { readonly code: string }
type Chunk = {
  readonly choices?: readonly { readonly delta?: { readonly content?: string } }[]
  readonly usage?: { readonly cost: number } | null
  readonly error?: Problem
}
type Body = {
  readonly choices: readonly [{ readonly message: { readonly content: string } }]
  readonly usage: { readonly cost: number }
  readonly error?: Problem
}
