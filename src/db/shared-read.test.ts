import assert from 'node:assert/strict'
import { test } from 'node:test'
import { SharedRead } from './shared-read.ts'

test('calls during a read share the next read, and each gets data read after its call', async () => {
  const reads: { readonly keys: readonly string[]; readonly answer: (value: number) => void }[] = []
  const shared = new SharedRead<number>((keys) => {
    const { promise, resolve } = Promise.withResolvers<ReadonlyMap<string, number>>()
    reads.push({
      keys,
      answer: (value) => resolve(new Map(keys.filter((key) => key !== 'none').map((key) => [key, value]))),
    })
    return promise
  })
  const first = shared.find('a')
  await Promise.resolve()
  const later = [shared.find('a'), shared.find('b'), shared.find('none'), shared.find('b')]
  reads[0]!.answer(1)
  assert.equal(await first, 1)
  reads[1]!.answer(2)
  assert.deepEqual(await Promise.all(later), [2, 2, undefined, 2])
  assert.deepEqual(
    reads.map(({ keys }) => keys),
    [['a'], ['a', 'b', 'none']],
  )
})

test('a read that is stuck does not stop the next one', async () => {
  const stuck = Promise.withResolvers<never>()
  const shared = new SharedRead<string>(async (keys) =>
    keys.includes('a') ? stuck.promise : new Map([['b', 'found']]),
  )
  const first = shared.find('a')
  await Promise.resolve()
  assert.equal(await shared.find('b'), 'found')
  stuck.reject(new Error('Query read timeout'))
  await assert.rejects(first)
})

test('a read that fails rejects the calls that shared it, and not the next ones', async () => {
  let isDown = true
  const shared = new SharedRead<string>(async (keys) => {
    if (isDown) throw new Error('down')
    return new Map(keys.map((key) => [key, key]))
  })
  const shares = await Promise.allSettled([shared.find('a'), shared.find('b')])
  assert.deepEqual(
    shares.map(({ status }) => status),
    ['rejected', 'rejected'],
  )
  isDown = false
  assert.equal(await shared.find('a'), 'a')
})
