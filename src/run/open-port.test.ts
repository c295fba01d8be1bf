import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { readConfig } from '../config/config.ts'
import { openPort } from './web-node.ts'

test('requests that arrive while the service starts wait for it, up to a limit, in their order', async () => {
  await using stack = new AsyncDisposableStack()
  const config = readConfig({ PORT: '0', REQUESTS_MAX: '2' })
  const log = {} as never
  const opened = await openPort({ config, log, stack, onProgress() {}, signal: undefined })
  /** The answer is awaited later. */
  const send = async (path: string) => {
    const seen = once(opened.server, 'request')
    const answer = fetch(`http://127.0.0.1:${opened.port}${path}`)
    await seen
    return { answer }
  }
  const early = [await send('/first'), await send('/second')]
  const { answer: refused } = await send('/third')
  assert.equal((await refused).status, 503)
  opened.serve((incoming, outgoing) => void outgoing.end(incoming.url))
  const all = [...early, await send('/fourth')]
  const texts = await Promise.all(all.map(async ({ answer }) => (await answer).text()))
  assert.deepEqual(texts, ['/first', '/second', '/fourth'])
})
