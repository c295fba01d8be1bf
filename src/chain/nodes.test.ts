import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { type RpcAnswer, type RpcCall, type RpcProxy, startRpcProxy } from '../../test/support/rpc-proxy.ts'
import { virtualClock } from '../../test/support/virtual-clock.ts'
import { RpcRefusalError } from './json-rpc.ts'
import { Nodes } from './nodes.ts'

type Range = readonly [first: number, last: number]

test('a range of blocks with more logs than the node answers is read in parts, in order', async (t) => {
  const tooLarge = [
    { code: -32_012, message: 'exceeds max block range' },
    { code: -32_602, message: 'Log response size exceeded.' },
    { code: -32_005, message: 'query returned more than 3 results' },
  ]
  for (const error of tooLarge) {
    const node = await scripted(t, (call) => {
      const [first, last] = rangeOf(call)
      // One log in each block.
      const logs = Array.from({ length: last - first + 1 }, (_, index) => first + index)
      return logs.length > 3 ? { error } : { result: logs }
    })
    assert.deepEqual(await logs(new Nodes(node.url), 1, 10), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    assert.deepEqual(node.calls.slice(0, 3).map(rangeOf), [
      [1, 10],
      [1, 5],
      [1, 3],
    ])
  }
})

test('a node that finds every range too large is asked once for each halving', async (t) => {
  const node = await scripted(t, () => ({ error: { code: -32_012, message: 'no' } }))
  await assert.rejects(logs(new Nodes(node.url), 1, 1_000), RpcRefusalError)
  assert.ok(node.calls.length <= 11, `${node.calls.length} calls`)
})

test('a call that is refused because of its rate is repeated after a rest, and later calls keep to the pace', async (t) => {
  for (const code of [429, -32_005, -32_011]) {
    const clock = virtualClock(1)
    const askedAtMs: number[] = []
    const node = await scripted(t, () => {
      askedAtMs.push(clock.now())
      return askedAtMs.length <= 2 ? { error: { code, message: 'rate limited' } } : { result: [] }
    })
    const nodes = new Nodes(node.url, { clock })
    for (let count = 0; count < 3; count += 1) await logs(nodes, 1, 1_000)
    assert.deepEqual(node.calls.map(rangeOf), Array(5).fill([1, 1_000]))
    const pauses = askedAtMs.slice(1).map((ms, index) => ms - askedAtMs[index]!)
    assert.ok(pauses[0]! >= 750 && pauses.slice(1).every((ms) => ms >= 2_000), `${pauses}`)
  }
})

test('while calls are limited, a customer’s call overtakes comparisons, and no comparison waits forever', async (t) => {
  const clock = virtualClock(3)
  const asked: string[] = []
  const node = await scripted(t, ({ method }) => {
    asked.push(method)
    return asked.length === 1 ? { error: { code: -32_011, message: 'rate limited' } } : { result: '0x1' }
  })
  const nodes = new Nodes(node.url, { clock })
  await clock.only(() => nodes.request('eth_chainId', []))
  asked.length = 0
  const many = async (method: string, slackMs: number, count: number) => {
    for (let left = count; left > 0; left -= 1) await nodes.request(method, [], slackMs)
    clock.leave()
  }
  await Promise.all([many('comparison', 10_000, 4), many('customer', 0, 40), many('other', 0, 40)])
  assert.ok(!asked.slice(1, 10).includes('comparison'))
  assert.ok(asked.slice(0, 60).filter((method) => method === 'comparison').length >= 3)
})

test('a node that refuses, lags or fails is left for the next, and the first is used again afterwards', async (t) => {
  const refusals: (RpcAnswer | 'hang up')[] = [
    { error: { code: -32_011, message: 'rate limited' } },
    { error: { code: -32_014, message: 'head not available' } },
    { error: { code: -32_603, message: 'internal error' } },
    'hang up',
  ]
  for (const refusal of refusals) {
    const clock = virtualClock(1)
    let answer: RpcAnswer | 'hang up' = refusal
    const first = await scripted(t, ({ method }) => (method === 'eth_chainId' ? { result: '0x1' } : answer))
    const second = await scripted(t, ({ method }) => ({ result: method === 'eth_chainId' ? '0x1' : 'second' }))
    const nodes = new Nodes(`${first.url}, ${second.url}`, { clock })
    assert.equal(await nodes.request('eth_call', []), 'second')
    assert.deepEqual(
      first.calls.map(({ method }) => method),
      ['eth_chainId', 'eth_call'],
    )
    answer = { result: 'first' }
    await clock.sleep(60_000)
    assert.equal(await nodes.request('eth_call', []), 'first')
  }
})

test('a node of another chain is never listened to, not even while the first is away', async (t) => {
  const first = await scripted(t, ({ method }) => (method === 'eth_chainId' ? { result: '0x1' } : 'hang up'))
  const second = await scripted(t, () => ({ result: '0x2' }))
  await assert.rejects(new Nodes(`${second.url},${first.url}`, { chainId: 1 }).request('eth_call', []))
  second.calls.length = 0
  const nodes = new Nodes(`${first.url},${second.url}`)
  await assert.rejects(nodes.request('eth_call', []))
  assert.deepEqual(
    second.calls.map(({ method }) => method),
    ['eth_chainId'],
  )
  assert.deepEqual(
    nodes.health().map(({ failure }) => failure),
    ['unusable', 'other chain'],
  )
})

test('a head that another backend of the URL does not have yet is asked for again', async (t) => {
  let behind = 2
  const node = await scripted(t, () => {
    behind -= 1
    return behind >= 0 ? { error: { code: -32_014, message: 'head not available' } } : { result: '0x5' }
  })
  const nodes = new Nodes(node.url, { clock: virtualClock(1) })
  assert.equal(await nodes.request('eth_call', [{}, '0x9']), '0x5')
  assert.equal(node.calls.length, 3)
})

function logs(nodes: Nodes, first: number, last: number): Promise<unknown> {
  const [fromBlock, toBlock] = [`0x${first.toString(16)}`, `0x${last.toString(16)}`]
  return nodes.request('eth_getLogs', [{ fromBlock, toBlock, address: '0x1' }])
}

function rangeOf({ params }: RpcCall): Range {
  const [{ fromBlock, toBlock }] = params as [{ fromBlock: string; toBlock: string }]
  return [Number(fromBlock), Number(toBlock)]
}

async function scripted(t: TestContext, answer: (call: RpcCall) => RpcAnswer | 'hang up'): Promise<RpcProxy> {
  const node = await startRpcProxy(t, 'http://127.0.0.1:1')
  node.fault = async (call) => answer(call)
  return node
}
