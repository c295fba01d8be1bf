import assert from 'node:assert/strict'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { after, test } from 'node:test'
import { strangeWeb } from '../../test/support/strange-web.ts'
import { createWebFetch } from './fetch-page.ts'
import { createPageReader } from './page-reader.ts'
import { createSafeFetch, safeFetchLimits } from './safe-fetch.ts'
import { FetchFailedError } from './web-fetch.ts'

type Answer = (request: IncomingMessage, response: ServerResponse) => void

const never = new AbortController().signal
const web = strangeWeb()
const reader = createPageReader()
after(async () => {
  await reader.close()
  await web.close()
})
let sites = 0
let time = 0

const fetch = createSafeFetch({
  resolve: web.resolve,
  dial: web.dial,
  ownHosts: [],
  ownAddresses: [],
  userAgent: 'PennyRouter/test (+http://localhost)',
  limits: safeFetchLimits,
})
const webFetch = createWebFetch({ fetch, reader, now: () => time })

/** A separate host, without a robots.txt unless given one. Returns its address and the requested paths. */
async function site(answer: Answer, robots: Answer = (_request, response) => void response.writeHead(404).end()) {
  sites += 1
  const host = `site${sites}.example`
  const address = `93.184.218.${sites}`
  const paths: string[] = []
  web.name(host, [address])
  await web.serve(address, (request, response) => {
    paths.push(request.url!)
    if (request.url === '/robots.txt') robots(request, response)
    else answer(request, response)
  })
  return { url: `http://${host}`, paths }
}

function page(body: string, contentType = 'text/html; charset=utf-8'): Answer {
  return (_request, response) => void response.writeHead(200, { 'content-type': contentType }).end(body)
}

test('a page comes back as Markdown, with its title and where it was found', async () => {
  const { url } = await site((request, response) => {
    if (request.url === '/old') response.writeHead(301, { location: '/new' }).end()
    else page('<title>New</title><main><h1>Found</h1><p>A <a href="x">link</a></p></main>')(request, response)
  })
  assert.deepEqual(await webFetch.fetch(`${url}/old#part`, never, 'a'), {
    url: `${url}/new`,
    title: 'New',
    text: `# Found\n\nA [link](${url}/x)`,
    truncated: false,
  })
})

test('texts and JSON come back as they are', async () => {
  const { url } = await site(page('{"a": [1, 2]}', 'application/json'))
  assert.equal((await webFetch.fetch(url, never, 'a')).text, '{"a": [1, 2]}')
})

test('a long page is cut, and says so', async () => {
  const { url } = await site(page('word '.repeat(20_000), 'text/plain'))
  const { text, truncated } = await webFetch.fetch(url, never, 'a')
  assert.deepEqual([text.length, truncated], [40_000, true])
})

test('errors, images and programs are failures that name their cause', async () => {
  const missing = await site((_request, response) => void response.writeHead(404).end())
  await assert.rejects(webFetch.fetch(missing.url, never, 'a'), /status 404/)
  const picture = await site(page('x', 'image/png'))
  await assert.rejects(webFetch.fetch(picture.url, never, 'a'), FetchFailedError)
  await assert.rejects(webFetch.fetch('http://127.0.0.1/', never, 'a'), FetchFailedError)
  await assert.rejects(webFetch.fetch('not an address', never, 'a'), FetchFailedError)
})

test('a page that robots.txt disallows is not requested, not even after a redirect', async () => {
  const closed = await site(page('secret'), page('User-agent: PennyRouter\nDisallow: /', 'text/plain'))
  await assert.rejects(webFetch.fetch(`${closed.url}/a`, never, 'a'), /robots\.txt/)
  const stepping = await site(
    (_request, response) => void response.writeHead(302, { location: `${closed.url}/b` }).end(),
  )
  await assert.rejects(webFetch.fetch(stepping.url, never, 'a'), /robots\.txt/)
  assert.deepEqual(closed.paths, ['/robots.txt'])
})

test('a robots.txt is remembered for an hour', async () => {
  const { url, paths } = await site(page('open'), page('User-agent: *\nDisallow: /no', 'text/plain'))
  for (const path of ['/1', '/2', '/3']) await webFetch.fetch(url + path, never, 'a')
  assert.equal(paths.filter((path) => path === '/robots.txt').length, 1)
  time += 60 * 60_000 + 1
  await webFetch.fetch(url, never, 'a')
  assert.equal(paths.filter((path) => path === '/robots.txt').length, 2)
})

test('a host with a broken robots.txt is skipped for a while', async () => {
  let broken = true
  const { url } = await site(page('open'), (_request, response) => void response.writeHead(broken ? 503 : 404).end())
  await assert.rejects(webFetch.fetch(url, never, 'a'), /robots\.txt/)
  broken = false
  await assert.rejects(webFetch.fetch(url, never, 'a'), /robots\.txt/)
  time += 60_001
  assert.equal((await webFetch.fetch(url, never, 'a')).text, 'open')
})

test('fetches beyond the concurrency limit wait for a place, and are given up when none becomes free', async () => {
  const { url } = await site(() => {})
  const open = await site(page('open'))
  const limits = { charactersMax: 10, totalMsMax: 2_000, fetchesMax: 1 }
  const few = createWebFetch({ fetch, reader, now: () => time, limits: { ...limits, totalMsMax: 60_000 } })
  const controller = new AbortController()
  const first = few.fetch(url, controller.signal, 'a')
  const second = few.fetch(open.url, never, 'a')
  controller.abort(new Error('enough'))
  await assert.rejects(first, /enough/)
  assert.equal((await second).text, 'open')
  const hasty = createWebFetch({ fetch, reader, now: () => time, limits })
  const hanging = hasty.fetch(url, never, 'a')
  const waiting = hasty.fetch(open.url, never, 'a')
  await Promise.all([assert.rejects(hanging, /too long/), assert.rejects(waiting, /Too many pages|too long/)])
})

test('one account gets a quarter of the fetches, and others are served; what is beyond it waits', async () => {
  const { url } = await site(() => {})
  const open = await site(page('open'))
  const shared = createWebFetch({ fetch, reader, now: () => time })
  const [controller, left] = [new AbortController(), new AbortController()]
  const hanging = Array.from({ length: 16 }, () => shared.fetch(url, controller.signal, 'greedy'))
  const waiting = Array.from({ length: 4 }, () => shared.fetch(open.url, never, 'greedy'))
  const abandoned = shared.fetch(open.url, left.signal, 'greedy')
  assert.equal((await shared.fetch(open.url, never, 'honest')).text, 'open')
  assert.deepEqual(open.paths, ['/robots.txt', '/'])
  left.abort(new Error('left'))
  await assert.rejects(abandoned, /left/)
  controller.abort(new Error('enough'))
  const outcomes = await Promise.allSettled(hanging)
  assert.ok(outcomes.every(({ status }) => status === 'rejected'))
  assert.deepEqual(
    (await Promise.all(waiting)).map(({ text }) => text),
    ['open', 'open', 'open', 'open'],
  )
})

test('more fetches of one account than may wait are refused', async () => {
  const { url } = await site(() => {})
  const shared = createWebFetch({ fetch, reader, now: () => time })
  const controller = new AbortController()
  const many = Array.from({ length: 16 + 128 }, () => shared.fetch(url, controller.signal, 'greedy'))
  await assert.rejects(shared.fetch(url, never, 'greedy'), /Too many pages/)
  controller.abort(new Error('enough'))
  const outcomes = await Promise.allSettled(many)
  assert.ok(outcomes.every((outcome) => outcome.status === 'rejected' && /enough/.test(String(outcome.reason))))
})

test('a fetch that takes too long altogether is given up', async () => {
  const { url } = await site(() => {})
  const hasty = createWebFetch({
    fetch,
    reader,
    now: () => time,
    limits: { charactersMax: 10, totalMsMax: 200, fetchesMax: 1 },
  })
  await assert.rejects(hasty.fetch(url, never, 'a'), /too long/)
})
