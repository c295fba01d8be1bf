import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { readConfig } from '../config/config.ts'
import { openPort } from './web-node.ts'

const config = readConfig({ PORT: '0', REQUESTS_MAX: '2' })

async function open(stack: AsyncDisposableStack) {
  const opened = await openPort({ config, log: {} as never, stack, onProgress() {}, signal: undefined })
  /** Resolves when the request has arrived; its answer comes later. */
  const send = async (path: string, signal?: AbortSignal) => {
    const arrived = once(opened.server, 'request')
    const answer = fetch(`http://127.0.0.1:${opened.port}${path}`, { signal: signal ?? null })
    // Awaited later, and it may fail before that.
    answer.catch(() => {})
    const [, outgoing] = await arrived
    return { answer, closed: once(outgoing, 'close') }
  }
  return { opened, send }
}

test('requests that arrive while the service starts wait for it, up to a limit, in their order', async () => {
  await using stack = new AsyncDisposableStack()
  const { opened, send } = await open(stack)
  const early = [await send('/first'), await send('/second')]
  const { answer: refused } = await send('/third')
  assert.equal((await refused).status, 503)
  opened.serve((incoming, outgoing) => void outgoing.end(incoming.url))
  const all = [...early, await send('/fourth')]
  const texts = await Promise.all(all.map(async ({ answer }) => (await answer).text()))
  assert.deepEqual(texts, ['/first', '/second', '/fourth'])
})

test('while the service starts, probes are answered, and a client that leaves gives its place back', async () => {
  await using stack = new AsyncDisposableStack()
  const { opened, send } = await open(stack)
  for (const path of ['/readyz', '/healthz'])
    assert.equal((await fetch(`http://127.0.0.1:${opened.port}${path}`)).status, 503)
  const leaving = new AbortController()
  const gone = [await send('/first', leaving.signal), await send('/second', leaving.signal)]
  leaving.abort()
  await Promise.all(gone.map(({ closed }) => closed))
  const { answer } = await send('/third')
  opened.serve((incoming, outgoing) => void outgoing.end(incoming.url))
  assert.equal(await (await answer).text(), '/third')
})

test('a start that fails answers the requests that waited for it, and closes the port', async () => {
  const stack = new AsyncDisposableStack()
  const { opened, send } = await open(stack)
  const { answer } = await send('/first')
  const closed = once(opened.server, 'close')
  await stack.disposeAsync()
  assert.equal((await answer).status, 503)
  await closed
})
