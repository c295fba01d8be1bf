import assert from 'node:assert/strict'
import { test } from 'node:test'
import { orderByKey } from './rendezvous.ts'

const upstream = (provider: string, weight = 1, priority = 0) => ({ provider, weight, priority })
const keys = Array.from({ length: 20_000 }, (_, index) => `request-${index}`)
const firstOf = (upstreams: Parameters<typeof orderByKey>[0], key: string) => orderByKey(upstreams, key)[0]!.provider

test('a lower priority always comes first, whatever the weights', () => {
  const upstreams = [upstream('spare', 1_000, 2), upstream('main', 1, 1)]
  for (const key of keys.slice(0, 500)) {
    assert.deepEqual(
      orderByKey(upstreams, key).map(({ provider }) => provider),
      ['main', 'spare'],
    )
  }
})

test('requests are shared out by weight', () => {
  const upstreams = [upstream('a', 1), upstream('b', 3)]
  const share = keys.filter((key) => firstOf(upstreams, key) === 'b').length / keys.length
  assert.ok(Math.abs(share - 0.75) < 0.02, `b got ${share}`)
})

test('a key keeps its provider; when one goes, only its own keys move', () => {
  const three = [upstream('a'), upstream('b'), upstream('c')]
  const two = three.slice(0, 2)
  for (const key of keys.slice(0, 2_000)) {
    const before = firstOf(three, key)
    assert.equal(firstOf([...three].reverse(), key), before)
    if (before !== 'c') assert.equal(firstOf(two, key), before)
  }
})
