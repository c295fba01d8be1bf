import { once } from 'node:events'
import { Agent, type IncomingMessage, request } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { chatBody } from './parts/chat-body.ts'
import { beChild } from './parts/child.ts'
import { pacedModel } from './parts/paced-model.ts'

// A hostile account of the hostile bench, in its own process, on 100 connections: every request that costs it nothing, or those that cost
// little.

export type HostileOrder = {
  readonly attacks: keyof typeof attacks
  /** Ends in /v1. */
  readonly baseUrl: string
  readonly apiKey: string
  readonly keyId: string
  readonly sessionToken: string
  readonly durationMs: number
}

/** How often each attack was made, and its responses. */
export type HostileReport = readonly { readonly name: string; readonly times: number; readonly answers: string }[]

type Attack = {
  readonly name: string
  readonly connections: number
  /** Makes one attack and returns the response. */
  readonly strike: (order: HostileOrder, agent: Agent, time: number) => Promise<number | string>
}

const longCharacters = 1_300_000
const heldMs = 15_000
const longBodies = Array.from({ length: 4 }, () => chatBody({ messages: [{ role: 'user', content: randomWords() }] }))

const free: readonly Attack[] = [
  {
    name: 'long prompts of random words, hung up',
    connections: 15,
    strike: (order, agent, time) => hangUp(order, agent, '/chat/completions', longBodies[time % 4]!),
  },
  {
    name: 'quotes of long prompts, hung up',
    connections: 15,
    strike: (order, agent, time) => hangUp(order, agent, '/quote', longBodies[time % 4]!),
  },
  { name: 'bodies of a byte a second', connections: 20, strike: sendSlowly },
  {
    name: 'unknown models',
    connections: 10,
    strike: (order, agent, time) => post(order, agent, '/chat/completions', chatBody({ model: `model-${time}` })),
  },
  {
    name: 'requests without money',
    connections: 10,
    strike: (order, agent) => post(order, agent, '/chat/completions', chatBody()),
  },
  {
    name: 'marked retries',
    connections: 10,
    strike: (order, agent) => post(order, agent, '/chat/completions', chatBody(), { 'x-stainless-retry-count': '1' }),
  },
  { name: 'quotes', connections: 10, strike: (order, agent) => post(order, agent, '/quote', chatBody()) },
  {
    name: 'totals of the log',
    connections: 5,
    strike: ({ baseUrl, apiKey }, agent) =>
      send(agent, new URL('/api/requests/totals?status=refused', baseUrl), 'GET', bearer(apiKey)),
  },
  { name: 'changes of a key’s window', connections: 5, strike: changeWindow },
]

/** A few thousand tokens: an account with half a dollar can pay for dozens. */
const paidBodies = longBodies.map((_, time) => askingFor(randomWords(20_000), { user: `${time}` }))
const manyNames = askingFor('Hi', Object.fromEntries(Array.from({ length: 9_000 }, (_, name) => [`name-${name}`, 1])))

const paying: readonly Attack[] = [
  {
    name: 'the cheapest requests',
    connections: 20,
    strike: (order, agent) => post(order, agent, '/chat/completions', askingFor('Hi')),
  },
  {
    name: 'prompts of 20 kB of random words',
    connections: 15,
    strike: (order, agent, time) => post(order, agent, '/chat/completions', paidBodies[time % 4]!),
  },
  {
    name: 'bodies of 9,000 names',
    connections: 10,
    strike: (order, agent) => post(order, agent, '/chat/completions', manyNames),
  },
  { name: 'streams that are held open', connections: 20, strike: (order) => holdStream(order, () => {}) },
  {
    name: 'streams that are not read',
    connections: 10,
    strike: (order) => holdStream(order, (answer) => answer.pause()),
  },
  {
    name: 'retries of one paid answer',
    connections: 10,
    strike: (order, agent) => post(order, agent, '/chat/completions', askingFor('Hi'), { 'idempotency-key': 'paid' }),
  },
  {
    name: 'quotes of 20 kB of random words',
    connections: 10,
    strike: (order, agent, time) => post(order, agent, '/quote', paidBodies[time % 4]!),
  },
  {
    name: 'pages of the log',
    connections: 5,
    strike: ({ baseUrl, apiKey }, agent) =>
      send(agent, new URL('/api/requests?limit=100', baseUrl), 'GET', bearer(apiKey)),
  },
]

const attacks = { free, paying }

/** Pays for as little output as possible. */
function askingFor(content: string, more: object = {}): string {
  return chatBody({
    max_tokens: 1,
    web_search: false,
    web_fetch: false,
    messages: [{ role: 'user', content }],
    ...more,
  })
}

beChild<object, object, HostileOrder, HostileReport>(async () => ({
  ready: {},
  answer: async (order) => Promise.all(attacks[order.attacks].map((attack) => run(attack, order))),
}))

async function run({ name, connections, strike }: Attack, order: HostileOrder): Promise<HostileReport[number]> {
  const agent = new Agent({ keepAlive: true, maxSockets: connections })
  const answers = new Map<number | string, number>()
  const untilMs = performance.now() + order.durationMs
  const end = setTimeout(() => agent.destroy(), order.durationMs)
  let times = 0
  const connection = async () => {
    while (performance.now() < untilMs) {
      times += 1
      const answer = await strike(order, agent, times).catch(() => 'connection lost')
      const told = performance.now() < untilMs ? answer : 'unanswered at the end'
      answers.set(told, (answers.get(told) ?? 0) + 1)
    }
  }
  await Promise.all(Array.from({ length: connections }, connection))
  clearTimeout(end)
  agent.destroy()
  const told = [...answers].sort(([, one], [, other]) => other - one).map(([answer, count]) => `${answer}: ${count}`)
  return { name, times, answers: told.join(', ') }
}

function post(
  { baseUrl, apiKey }: HostileOrder,
  agent: Agent,
  path: string,
  body: string,
  headers: Record<string, string> = {},
): Promise<number> {
  return send(agent, new URL(`${baseUrl}${path}`), 'POST', { ...bearer(apiKey), ...headers }, body)
}

async function send(
  agent: Agent,
  url: URL,
  method: string,
  headers: Record<string, string>,
  body?: string,
): Promise<number> {
  const outgoing = request(url, {
    method,
    agent,
    headers: { ...headers, ...(body !== undefined && { 'content-type': 'application/json' }) },
  })
  outgoing.end(body)
  const [answer] = (await once(outgoing, 'response')) as [IncomingMessage]
  answer.resume()
  await once(answer, 'end')
  return answer.statusCode!
}

/** Sends the whole request and disconnects before the response. */
async function hangUp({ baseUrl, apiKey }: HostileOrder, agent: Agent, path: string, body: string): Promise<string> {
  const outgoing = request(`${baseUrl}${path}`, {
    method: 'POST',
    agent,
    headers: {
      ...bearer(apiKey),
      'content-type': 'application/json',
      'content-length': String(Buffer.byteLength(body)),
    },
  })
  const answered = once(outgoing, 'response').then(([answer]) => {
    const { statusCode } = (answer as IncomingMessage).resume()
    return String(statusCode)
  })
  outgoing.end(body)
  await Promise.race([once(outgoing, 'finish'), answered])
  const answer = await Promise.race([sleep(50).then(() => 'hung up'), answered])
  outgoing.destroy()
  answered.catch(() => {})
  return answer
}

async function sendSlowly({ baseUrl, apiKey }: HostileOrder, agent: Agent): Promise<string> {
  const outgoing = request(`${baseUrl}/chat/completions`, {
    method: 'POST',
    agent,
    headers: { ...bearer(apiKey), 'content-type': 'application/json', 'content-length': '1000' },
  })
  const bytes = setInterval(() => outgoing.write(' '), 1_000)
  outgoing.write('{')
  try {
    const [answer] = (await once(outgoing, 'response')) as [IncomingMessage]
    return String(answer.statusCode)
  } finally {
    clearInterval(bytes)
    outgoing.destroy()
  }
}

/** The mock upstream answers this model a word at a time. */
async function holdStream(
  { baseUrl, apiKey }: HostileOrder,
  begin: (answer: IncomingMessage) => void,
): Promise<number> {
  const outgoing = request(`${baseUrl}/chat/completions`, {
    method: 'POST',
    headers: { ...bearer(apiKey), 'content-type': 'application/json' },
  })
  outgoing.end(chatBody({ model: pacedModel, stream: true, max_tokens: 1_000 }))
  const [answer] = (await once(outgoing, 'response')) as [IncomingMessage]
  answer.resume()
  begin(answer)
  await Promise.race([once(answer, 'close'), sleep(heldMs)])
  outgoing.destroy()
  return answer.statusCode!
}

function changeWindow({ baseUrl, keyId, sessionToken }: HostileOrder, agent: Agent, time: number): Promise<number> {
  // The cookie and the origin are those of the name by which the service knows itself.
  const { origin } = new URL(baseUrl.replace('127.0.0.1', 'localhost'))
  const headers = { cookie: `penny_session=${sessionToken}`, origin, host: new URL(origin).host }
  const window = time % 2 === 0 ? 'month' : 'lifetime'
  return send(agent, new URL(`/api/keys/${keyId}`, baseUrl), 'PATCH', headers, `{"limit_window":"${window}"}`)
}

function bearer(apiKey: string): Record<string, string> {
  return { authorization: `Bearer ${apiKey}` }
}

/** The slowest text for a tokenizer that a person could have written. */
function randomWords(characters = longCharacters): string {
  const words: string[] = []
  for (let length = 0; length < characters; length += words.at(-1)!.length + 1) {
    words.push(
      Math.random()
        .toString(36)
        .slice(2, 4 + Math.floor(Math.random() * 8)),
    )
  }
  return words.join(' ')
}
