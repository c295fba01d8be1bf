import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type TestContext, test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import { reasonOf } from '../errors.ts'
import { JsonRpcClient, RpcRefusalError } from './json-rpc.ts'

test('a call is answered with its result, and a key in the address travels as the server expects it', async (t) => {
  const asked: { authorization: string | undefined; url: string | undefined; body: unknown }[] = []
  const origin = await serve(t, async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk)
    const body = JSON.parse(Buffer.concat(chunks).toString())
    asked.push({ authorization: request.headers.authorization, url: request.url, body })
    response.end(JSON.stringify({ jsonrpc: '2.0', id: body.id, result: null }))
  })
  const url = `${origin.replace('://', '://user:p%40ss@')}/v2/key?tier=1`
  assert.equal(await new JsonRpcClient(url, { timeoutMs: 5_000 }).request('eth_chainId', [1]), null)
  assert.deepEqual(asked, [
    {
      authorization: `Basic ${Buffer.from('user:p@ss').toString('base64')}`,
      url: '/v2/key?tier=1',
      body: { jsonrpc: '2.0', id: 1, method: 'eth_chainId', params: [1] },
    },
  ])
})

test('an error of the node keeps its code, message and data, with any HTTP status', async (t) => {
  const error = { code: 3, message: 'execution reverted', data: '0xdead' }
  for (const status of [200, 400]) {
    const origin = await serve(t, (_, response) => response.writeHead(status).end(JSON.stringify({ error })))
    await assert.rejects(client(origin).request('eth_call', []), (thrown) => {
      assert.ok(thrown instanceof RpcRefusalError)
      assert.deepEqual([thrown.code, thrown.message, thrown.data], [3, 'execution reverted', '0xdead'])
      return true
    })
  }
})

test('an invalid response is an error that names only the status', async (t) => {
  for (const [status, text, reason] of [
    [401, '<html>key hunter2</html>', 'it answers 401'],
    [502, '', 'it answers 502'],
    [200, 'not JSON', 'the node sent no answer'],
    [200, '[]', 'the node sent no answer'],
    [200, '{}', 'the node sent no answer'],
  ] as const) {
    const origin = await serve(t, (_, response) => response.writeHead(status).end(text))
    const failure = await client(origin)
      .request('eth_chainId', [])
      .catch((error: Error) => error)
    assert.equal(reasonOf(failure), reason)
  }
})

test('a node that does not answer, or drips without end, is given up in time', async (t) => {
  const silent = await serve(t, () => {})
  await assert.rejects(new JsonRpcClient(silent, { timeoutMs: 50 }).request('eth_chainId', []), /after 50 ms/)
  const dripping = await serve(t, (_, response) => {
    response.write('{')
    const timer = setInterval(() => response.write(' '), 5)
    response.on('close', () => clearInterval(timer))
  })
  await assert.rejects(new JsonRpcClient(dripping, { timeoutMs: 100 }).request('eth_chainId', []), /after 100 ms/)
})

function client(origin: string): JsonRpcClient {
  return new JsonRpcClient(origin, { timeoutMs: 5_000 })
}

async function serve(test: TestContext, answer: RequestListener): Promise<string> {
  const server = createServer(answer)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  atEnd(test, () => {
    server.close()
    server.closeAllConnections()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}
