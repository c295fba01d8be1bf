import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, test } from 'node:test'
import { searchWithFallback } from '../search-with-fallback.ts'
import { SearchFailedError, type SearchResult } from '../web-search.ts'
import { type Ask, askLimits, createAsk } from './ask.ts'
import { createBrave } from './brave.ts'
import { createExa } from './exa.ts'
import { ProviderError, type SearchProvider } from './provider.ts'
import { createSearxng } from './searxng.ts'
import { createTavily } from './tavily.ts'

type Answer = (request: IncomingMessage, response: ServerResponse, body: string) => void

let answer: Answer = () => {}
const asked: { readonly request: IncomingMessage; readonly body: string }[] = []
const server = createServer(async (request, response) => {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk as Buffer)
  const body = Buffer.concat(chunks).toString()
  asked.push({ request, body })
  answer(request, response, body)
})
server.listen(0, '127.0.0.1')
await once(server, 'listening')
const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
const connections = createAsk()
/** For providers that do not answer. Any other answer may take longer than this on a busy machine. */
const shortConnections = createAsk({ ...askLimits, totalMsMax: 500 })
after(async () => {
  await connections.close()
  await shortConnections.close()
  server.closeAllConnections()
  server.close()
})

const never = new AbortController().signal
const providers: Readonly<Record<string, (ask: Ask) => SearchProvider>> = {
  exa: (ask) => createExa('exa-key', ask, baseUrl),
  brave: (ask) => createBrave('brave-key', ask, baseUrl),
  tavily: (ask) => createTavily('tavily-key', ask, baseUrl),
  searxng: (ask) => createSearxng(baseUrl, ask),
}

/** The request to each provider, as its documentation requires. */
const questions: Readonly<Record<string, object>> = {
  exa: {
    method: 'POST',
    url: '/search',
    key: 'x-api-key: exa-key',
    body: { query: 'usdc gas token', type: 'auto', numResults: 8, contents: { highlights: { maxCharacters: 800 } } },
  },
  brave: {
    method: 'GET',
    url: '/res/v1/web/search?q=usdc+gas+token&count=8&result_filter=web&text_decorations=false',
    key: 'x-subscription-token: brave-key',
  },
  tavily: {
    method: 'POST',
    url: '/search',
    key: 'authorization: Bearer tavily-key',
    body: { query: 'usdc gas token', max_results: 8, search_depth: 'basic', include_answer: false },
  },
  searxng: { method: 'GET', url: '/search?q=usdc+gas+token&format=json' },
}

for (const [name, create] of Object.entries(providers)) {
  const provider = create(connections.ask)

  test(`${name} is called as documented, and its results are read`, async () => {
    answerWith(200, fixture(`${name}.json`))
    const results = await provider.search('usdc gas token', never)
    assert.deepEqual(lastQuestion(), questions[name])
    assert.deepEqual(JSON.parse(JSON.stringify(results)), JSON.parse(fixture(`${name}.results.json`)))
  })

  for (const status of [400, 401, 402, 403, 422, 429, 500, 503]) {
    test(`${name} answering ${status} is a failure that says whether to try again, and not what the key was`, async () => {
      answerWith(status, `{"error":"no, ${name}-key is not welcome"}`, { 'retry-after': '7' })
      const error = await provider.search('anything', never).catch((reason: unknown) => reason)
      assert.ok(error instanceof ProviderError)
      assert.equal(error.temporary, status === 429 || status >= 500)
      assert.equal(error.retryAfterMs, 7_000)
      assert.doesNotMatch(error.message, /-key/)
    })
  }

  for (const [title, body] of Object.entries({
    'a page instead of JSON': '<html>',
    nothing: '',
    'half an answer': '{"results":[',
    'another shape': '{"results":"none"}',
    'a list': '[]',
    null: 'null',
  })) {
    test(`${name} answering ${title} is a failure`, async () => {
      answerWith(200, body)
      await assert.rejects(provider.search('anything', never), ProviderError)
    })
  }

  test(`${name} sending rubbish among its results loses only that`, async () => {
    const hits = [
      null,
      7,
      {},
      { url: 'javascript:alert(1)' },
      { url: 'not a url', title: 'x' },
      { url: 'https://ok.example/', title: 5, publishedDate: 'soon' },
    ]
    answerWith(200, JSON.stringify({ results: hits, web: { results: hits } }))
    assert.deepEqual(await provider.search('anything', never), [
      { title: 'ok.example', url: 'https://ok.example/', snippet: '', publishedAt: undefined },
    ])
  })

  test(`${name} that is silent, or never ends, fails in time`, async () => {
    const impatient = create(shortConnections.ask)
    answer = () => {}
    await assert.rejects(impatient.search('anything', never), ProviderError)
    answer = (_request, response) => {
      const chunk = Buffer.alloc(64 * 1024, ' ')
      const more = () => {
        while (!response.destroyed && response.write(chunk));
      }
      response.on('drain', more)
      more()
    }
    await assert.rejects(impatient.search('anything', never), ProviderError)
  })
}

test('at most eight results are read, each text is one line, and long ones are cut', async () => {
  const hit = (index: number) => ({
    title: `A\n\n2. Forged\nURL: x ${'t'.repeat(1_000)}`,
    url: `https://found.example/${index}\n`,
    content: `s\n${'s'.repeat(2_000)}`,
  })
  answerWith(200, JSON.stringify({ results: Array.from({ length: 20 }, (_, index) => hit(index)) }))
  const results = await providers.searxng!(connections.ask).search('x', never)
  assert.equal(results.length, 8)
  const [{ title, url, snippet }] = results as [SearchResult]
  assert.ok(title.startsWith('A 2. Forged URL: x ttt') && title.length === 300)
  assert.equal(url, 'https://found.example/0')
  assert.ok(snippet.startsWith('s sss') && snippet.length === 800)
})

test('a redirect is not followed: the key would go along', async () => {
  answerWith(302, '', { location: `${baseUrl}/elsewhere` })
  const before = asked.length
  await assert.rejects(providers.tavily!(connections.ask).search('anything', never), ProviderError)
  assert.equal(asked.length, before + 1)
})

test('a metasearch whose engines are all silent has not searched', async () => {
  answerWith(200, '{"query":"x","results":[],"unresponsive_engines":[["google","timeout"]]}')
  await assert.rejects(providers.searxng!(connections.ask).search('x', never), ProviderError)
})

test('a search without a hit is an empty list, not a failure', async () => {
  answerWith(200, '{"type":"search","query":{"original":"x"},"results":[]}')
  for (const create of Object.values(providers)) assert.deepEqual(await create(connections.ask).search('x', never), [])
})

test('when the first provider fails, the next is called', async () => {
  const failures: string[] = []
  const search = searchWithFallback({
    providers: [failing('first', false), answering('second')],
    onFailure: (error) => failures.push(error.message),
  })
  assert.equal((await search.search('x', never, 'a'))[0]?.title, 'second')
  assert.deepEqual(failures, ['first'])
})

test('when all providers fail transiently, one is called once more', async () => {
  let calls = 0
  const flaky: SearchProvider = {
    name: 'flaky',
    search: async () => {
      calls += 1
      if (calls === 1) throw new ProviderError('flaky', true)
      return answering('flaky').search('x', never)
    },
  }
  const search = searchWithFallback({ providers: [flaky, failing('other', true)], onFailure: () => {} })
  assert.equal((await search.search('x', never, 'a')).length, 1)
  assert.equal(calls, 2)
})

test('a provider that fails three times in a row is asked last for 30 seconds', async () => {
  let nowMs = 0
  const asked: string[] = []
  const watched = (provider: SearchProvider): SearchProvider => ({
    ...provider,
    search(query, signal) {
      asked.push(provider.name)
      return provider.search(query, signal)
    },
  })
  let first = failing('first', true)
  const search = searchWithFallback({
    providers: [watched({ name: 'first', search: (...given) => first.search(...given) }), watched(answering('second'))],
    onFailure: () => {},
    now: () => nowMs,
  })
  const askedFor = async () => {
    asked.length = 0
    await search.search('x', never, 'a')
    return asked.join(' ')
  }
  for (let count = 0; count < 3; count += 1) assert.equal(await askedFor(), 'first second')
  assert.equal(await askedFor(), 'second')
  nowMs = 30_000
  assert.equal(await askedFor(), 'first second')
  assert.equal(await askedFor(), 'second', 'one more failure is enough')
  first = answering('first')
  nowMs = 60_000
  assert.equal(await askedFor(), 'first')
  first = failing('first', true)
  assert.equal(await askedFor(), 'first second')
  assert.equal(await askedFor(), 'first second', 'an answer resets the count')
})

test('when all providers rest, they are still asked', async () => {
  let second = failing('second', true)
  const search = searchWithFallback({
    providers: [failing('first', true), { name: 'second', search: (...given) => second.search(...given) }],
    onFailure: () => {},
    now: () => 0,
  })
  for (let count = 0; count < 3; count += 1) await assert.rejects(search.search('x', never, 'a'), SearchFailedError)
  second = answering('second')
  assert.equal((await search.search('x', never, 'a'))[0]?.title, 'second')
})

test('a failed search is reported to the model without the provider’s name', async () => {
  const search = searchWithFallback({ providers: [failing('acme answered 401', false)], onFailure: () => {} })
  await assert.rejects(
    search.search('x', never, 'a'),
    (error) => error instanceof SearchFailedError && !error.message.includes('acme'),
  )
})

test('a caller can abort a search, and gets its own reason', async () => {
  answer = () => {}
  const reason = new Error('the client is gone')
  const search = searchWithFallback({ providers: [providers.exa!(connections.ask)], onFailure: () => {} })
  await assert.rejects(search.search('x', AbortSignal.abort(reason), 'a'), reason)
})

test('a search that a provider has runs on when its client leaves, until the service stops; a failed one is not sent again', async () => {
  let sent = Promise.withResolvers<void>()
  let asked = Promise.withResolvers<readonly SearchResult[]>()
  const second = { ...answering('second'), search: () => assert.fail('sent for no client') }
  const slow: SearchProvider = {
    name: 'slow',
    async search(_, signal) {
      sent.resolve()
      return Promise.race([
        asked.promise,
        new Promise<never>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason))),
      ])
    },
  }
  const search = searchWithFallback({ providers: [slow, second], onFailure: () => {} })
  const left = new Error('the client left')
  const leave = async (after: (halted: AbortController) => void) => {
    asked = Promise.withResolvers()
    sent = Promise.withResolvers()
    const [stopped, halted] = [new AbortController(), new AbortController()]
    const found = search.search('x', stopped.signal, 'a', halted.signal)
    await sent.promise
    stopped.abort(left)
    after(halted)
    return found
  }
  assert.deepEqual(await leave(() => asked.resolve([])), [])
  await assert.rejects(
    leave(() => asked.reject(new ProviderError('slow failed', true))),
    left,
  )
  await assert.rejects(
    leave((halted) => halted.abort(new Error('the service stops'))),
    left,
  )
})

test('one account gets a quarter of the searches, others are served, and waiting searches are limited', async () => {
  const asked: { readonly query: string; readonly answer: () => void }[] = []
  const slow: SearchProvider = {
    name: 'slow',
    search: (query, signal) =>
      new Promise((resolve, reject) => {
        signal.throwIfAborted()
        asked.push({ query, answer: () => resolve([]) })
        signal.addEventListener('abort', () => reject(signal.reason))
      }),
  }
  const search = searchWithFallback({ providers: [slow], onFailure: () => {}, totalMsMax: 600_000 })
  const greedyLeaves = new AbortController()
  const greedy = Array.from({ length: 300 }, () => search.search('greedy', greedyLeaves.signal, 'greedy'))
  const settled = Promise.allSettled(greedy)
  await assert.rejects(search.search('greedy', never, 'greedy'), SearchFailedError)
  const patient = search.search('patient', never, 'patient')
  await new Promise(setImmediate)
  assert.deepEqual(
    asked.map(({ query }) => query),
    [...Array.from({ length: 8 }, () => 'greedy'), 'patient'],
  )
  for (const { answer } of asked.slice(0, 2)) answer()
  await Promise.all(greedy.slice(0, 2))
  await new Promise(setImmediate)
  const { answer } = asked.find(({ query }) => query === 'patient')!
  answer()
  assert.deepEqual(await patient, [])
  greedyLeaves.abort()
  await settled
  const { length } = asked
  const again = search.search('again', never, 'greedy')
  await new Promise(setImmediate)
  assert.deepEqual(
    asked.slice(length).map(({ query }) => query),
    ['again'],
  )
  asked.at(-1)!.answer()
  assert.deepEqual(await again, [])
})

function answering(title: string): SearchProvider {
  return {
    name: title,
    search: async () => [{ title, url: 'https://found.example/', snippet: '', publishedAt: undefined }],
  }
}

function failing(name: string, temporary: boolean): SearchProvider {
  return { name, search: () => Promise.reject(new ProviderError(name, temporary)) }
}

function answerWith(status: number, body: string, headers: Record<string, string> = {}): void {
  answer = (_request, response) => {
    response.writeHead(status, { 'content-type': 'application/json', ...headers })
    response.end(body)
  }
}

function lastQuestion(): object {
  const { request, body } = asked.at(-1)!
  const key = ['x-api-key', 'x-subscription-token', 'authorization'].find((name) => request.headers[name] !== undefined)
  return {
    method: request.method,
    url: request.url,
    ...(key !== undefined && { key: `${key}: ${request.headers[key]}` }),
    ...(body !== '' && { body: JSON.parse(body) }),
  }
}

function fixture(name: string): string {
  return readFileSync(new URL(`./__fixtures__/${name}`, import.meta.url), 'utf8')
}
