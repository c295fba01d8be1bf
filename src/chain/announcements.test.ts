import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isDeepStrictEqual } from 'node:util'
import type { Hex } from 'viem'
import { startAnnouncer } from '../../test/support/announcing-node.ts'
import { atEnd } from '../../test/support/at-end.ts'
import { startRpcProxy } from '../../test/support/rpc-proxy.ts'
import { until } from '../../test/support/until.ts'
import { ChainNode } from './node.ts'

const chainId = 5042

test('while a node announces heads, the height costs no call; when its connection ends, it is asked for again', async (t) => {
  const announcer = await startAnnouncer(t, chainId)
  const asked = await startRpcProxy(t, 'http://127.0.0.1:1')
  asked.fault = async () => ({ result: '0x7' })
  const node = new ChainNode(asked.url, { chainId })
  assert.equal(await node.height(), 7n)
  const heads = node.listen(announcer.url, chainId)
  atEnd(t, () => heads.close())
  const connection = await announcer.subscribed()
  connection.announce(9)
  await until(() => heads.height !== undefined)
  assert.equal(await node.height(), 9n)
  assert.equal(asked.calls.length, 1)
  assert.deepEqual(
    node.health().map(({ failure }) => failure),
    [undefined, undefined],
  )
  connection.end()
  await until(() => node.health()[1]!.failure === 'unusable')
  await until(() => heads.height === undefined)
  assert.equal(await node.height(), 7n)
  ;(await announcer.subscribed()).announce(12)
  await until(async () => (await node.height()) === 12n)
})

test('heads of another chain are not believed', async (t) => {
  const announcer = await startAnnouncer(t, chainId + 1)
  const asked = await startRpcProxy(t, 'http://127.0.0.1:1')
  asked.fault = async () => ({ result: '0x7' })
  const node = new ChainNode(asked.url, { chainId })
  const heads = node.listen(announcer.url, chainId)
  atEnd(t, () => heads.close())
  await until(() => node.health()[1]!.failure === 'other chain')
  assert.equal(await node.height(), 7n)
})

test('a group of addresses is watched by one subscription, also after it grew and the connection was lost', async (t) => {
  const announcer = await startAnnouncer(t, chainId)
  const node = new ChainNode('http://127.0.0.1:1', { chainId })
  const announcements = node.listen(announcer.url, chainId)
  atEnd(t, () => announcements.close())
  const [contract, topic] = [`0x${'c'.repeat(40)}`, `0x${'d'.repeat(64)}`] as const
  const heard: bigint[] = []
  const watch = (group: number, topics: readonly Hex[]) =>
    node.watchLogs(group, contract, [topics], ({ block }) => void heard.push(block))
  const first = await announcer.subscribed()
  watch(0, [topic])
  watch(0, [topic, topic])
  watch(1, [topic])
  const groups = [
    { address: contract, topics: [[topic, topic]] },
    { address: contract, topics: [[topic]] },
  ]
  await until(() => isDeepStrictEqual(first.filters, groups))
  first.end()
  const second = await announcer.subscribed()
  await until(() => isDeepStrictEqual(second.filters, groups))
  const hash = `0x${'e'.repeat(64)}`
  const place = { blockNumber: '0x7', blockHash: hash, transactionHash: hash, logIndex: '0x1' }
  const log = { address: contract, topics: [topic], data: '0x', ...place }
  for (const wrong of [{}, { ...log, address: hash }, { ...log, removed: true }, { ...log, blockNumber: 7 }]) {
    second.announceLog(wrong)
  }
  second.announceLog({ ...log, blockNumber: '0x8' })
  await until(() => heard.length > 0)
  assert.deepEqual(heard, [8n])
})
