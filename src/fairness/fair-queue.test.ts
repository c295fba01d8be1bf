import assert from 'node:assert/strict'
import { test } from 'node:test'
import { FairQueue } from './fair-queue.ts'

type Item = { readonly name: string; readonly weight: number }

/** Serves everything, each item in a single step. The first letter of a name is its account. Returns the names in order of service. */
function serveAll(queue: FairQueue<Item>): string {
  const order: string[] = []
  for (let item = queue.peek(); item !== undefined; item = queue.peek()) {
    order.push(item.name)
    queue.served(item.name[0]!, item.weight, true)
  }
  return order.join(' ')
}

test('accounts are served in turn, each with as much as the quantum', () => {
  const queue = new FairQueue<Item>(10)
  for (const name of ['a1', 'a2', 'a3', 'a4']) queue.push('a', { name, weight: 10 })
  for (const name of ['b1', 'b2', 'b3']) queue.push('b', { name, weight: 5 })
  queue.push('c', { name: 'c1', weight: 1 })
  assert.equal(serveAll(queue), 'a1 b1 b2 c1 a2 b3 a3 a4')
  assert.equal(queue.length, 0)
})

test('an account that overdraws its turn waits for longer', () => {
  const queue = new FairQueue<Item>(10)
  for (const name of ['a1', 'a2']) queue.push('a', { name, weight: 30 })
  for (const name of ['b1', 'b2', 'b3', 'b4']) queue.push('b', { name, weight: 10 })
  assert.equal(serveAll(queue), 'a1 b1 b2 b3 a2 b4')
})

test('an item that is not done keeps its place, and one that is removed is not served', () => {
  const queue = new FairQueue<string>(10)
  queue.push('a', 'long')
  queue.push('b', 'gone')
  queue.push('b', 'short')
  queue.served('a', 10, false)
  assert.deepEqual(
    [queue.remove('b', 'gone'), queue.remove('b', 'gone'), queue.remove('c', 'never there')],
    [true, false, false],
  )
  assert.equal(queue.peek(), 'short')
  queue.served('b', 1, true)
  assert.equal(queue.peek(), 'long')
  assert.deepEqual([queue.length, queue.drain(), queue.peek()], [1, ['long'], undefined])
})

test('an account that may not be served now is skipped and keeps its turn', () => {
  const queue = new FairQueue<Item>(10)
  for (const name of ['a1', 'b1', 'b2']) queue.push(name[0]!, { name, weight: 10 })
  const isB = (account: string) => account === 'b'
  assert.equal(queue.peek(isB)?.name, 'b1')
  queue.served('b', 10, true)
  assert.equal(queue.peek(isB)?.name, 'b2')
  assert.equal(
    queue.peek(() => false),
    undefined,
  )
  assert.equal(serveAll(queue), 'a1 b2')
})
