import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ConcurrencyLimit } from '../fairness/concurrency-limit.ts'
import { type BatchOptions, BatchQueue } from './batch.ts'

class Lost extends Error {}
class Locked extends Error {}

function queueOf(run: BatchOptions<number, number>['run'], options: Partial<BatchOptions<number, number>> = {}) {
  return new BatchQueue<number, number>({ run, isOutcomeUnknown: (error) => error instanceof Lost, ...options })
}

test('concurrent calls share one batch, and calls during a commit share the next', async () => {
  const sizes: number[] = []
  const gate = Promise.withResolvers<void>()
  const queue = queueOf(async (calls) => {
    sizes.push(calls.length)
    if (sizes.length === 1) await gate.promise
    return calls.map((call) => call * 2)
  })
  const first = [queue.add(1), queue.add(2), queue.add(3)]
  await new Promise((resolve) => setImmediate(resolve))
  const later = [queue.add(4), queue.add(5)]
  gate.resolve()
  assert.deepEqual(await Promise.all([...first, ...later]), [2, 4, 6, 8, 10])
  assert.deepEqual(sizes, [3, 2])
})

test('calls that are not awaited share the batch after the current one, and none is lost', async () => {
  const sizes: number[] = []
  const run = async (calls: readonly number[]) => {
    sizes.push(calls.length)
    return calls
  }
  const queue = queueOf(run, { restMs: 1_000 })
  await queue.add(0)
  const later: Promise<number>[] = []
  for (let call = 1; call <= 10; call += 1) {
    later.push(queue.add(call))
    await new Promise((resolve) => setImmediate(resolve))
  }
  assert.deepEqual(sizes, [1])
  await queue.drained()
  assert.deepEqual(await Promise.all(later), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
  assert.deepEqual(sizes, [1, 10])
})

test('a batch is never larger than its limit', async () => {
  const sizes: number[] = []
  const run = async (calls: readonly number[]) => {
    sizes.push(calls.length)
    return calls
  }
  const queue = queueOf(run, { sizeMax: 4 })
  await Promise.all(Array.from({ length: 10 }, (_, index) => queue.add(index)))
  assert.deepEqual(sizes, [4, 4, 2])
})

test('one bad call fails alone', async () => {
  const queue = queueOf(async (calls) => {
    if (calls.includes(2)) throw new Error('two is bad')
    return calls
  })
  const settled = await Promise.allSettled([1, 2, 3].map((call) => queue.add(call)))
  assert.deepEqual(
    settled.map(({ status }) => status),
    ['fulfilled', 'rejected', 'fulfilled'],
  )
})

test('when the reply to a commit is lost the same calls are run again', async () => {
  const runs: (readonly number[])[] = []
  const queue = queueOf(async (calls) => {
    runs.push(calls)
    if (runs.length < 3) throw new Lost()
    return calls
  })
  assert.deepEqual(await Promise.all([queue.add(1), queue.add(2)]), [1, 2])
  assert.deepEqual(runs, [
    [1, 2],
    [1, 2],
    [1, 2],
  ])
})

test('a queue that is stopped gives up what the database does not answer', async () => {
  const queue = queueOf(async () => {
    queue.stop()
    throw new Lost()
  })
  await assert.rejects(queue.add(1), Lost)
})

test('a full queue refuses immediately', async () => {
  const queue = queueOf(async (calls) => calls, { queuedMax: 2 })
  const taken = [queue.add(1), queue.add(2)]
  await assert.rejects(queue.add(3), { code: 'overloaded' })
  await Promise.all(taken)
})

test('drained waits for queued and running calls', async () => {
  let done = 0
  const queue = queueOf(
    async (calls) => {
      await new Promise((resolve) => setImmediate(resolve))
      done += calls.length
      return calls
    },
    { sizeMax: 1 },
  )
  void queue.add(1)
  void queue.add(2)
  await queue.drained()
  assert.equal(done, 2)
  await queue.drained()
})

test('under load, batches of different lanes run concurrently, and those of one lane do not', async () => {
  const underWay: number[] = []
  const together = new Set<string>()
  const queue = queueOf(
    async (calls) => {
      const lanes = [...new Set(calls.map((call) => call % 2))].sort()
      assert.deepEqual(
        lanes.filter((lane) => underWay.includes(lane)),
        [],
      )
      underWay.push(...lanes)
      together.add([...underWay].sort().join())
      await new Promise((resolve) => setImmediate(() => setImmediate(resolve)))
      for (const lane of lanes) underWay.splice(underWay.indexOf(lane), 1)
      return calls
    },
    { laneOf: (call) => call % 2, sizeMax: 100 },
  )
  const calls = Array.from({ length: 1_000 }, (_, index) => index)
  assert.deepEqual(await Promise.all(calls.map((call) => queue.add(call))), calls)
  assert.ok(together.has('0,1'))
})

test('a few calls share one batch, whatever their lanes', async () => {
  const sizes: number[] = []
  const queue = queueOf(
    async (calls) => {
      sizes.push(calls.length)
      return calls
    },
    { laneOf: (call) => call % 2 },
  )
  await Promise.all(Array.from({ length: 10 }, (_, index) => queue.add(index)))
  assert.deepEqual(sizes, [10])
})

test('a locked group is left out of every batch but its own until it is unlocked', async () => {
  const runs: (readonly number[])[] = []
  let isUnlocked = false
  const refuseLocked = (calls: readonly number[]) => {
    if (!isUnlocked && calls.some((call) => call >= 100)) throw new Locked()
    return calls
  }
  const queue = queueOf(
    async (calls) => {
      runs.push(calls)
      return refuseLocked(calls)
    },
    {
      groups: {
        of: (call) => (call >= 100 ? 'locked' : `free ${call}`),
        isLocked: (error) => error instanceof Locked,
        runUnlocked: async (calls) => calls.map((call) => (call >= 100 ? undefined : { result: call })),
        lockedLimit: new ConcurrencyLimit(1),
        queuedMax: 2,
      },
    },
  )
  const waiting = [queue.add(100), queue.add(101)]
  assert.deepEqual(await Promise.all([queue.add(1), queue.add(2)]), [1, 2])
  assert.deepEqual(await Promise.all([queue.add(3), queue.add(4)]), [3, 4])
  waiting.push(queue.add(102), queue.add(103))
  await assert.rejects(queue.add(104), { code: 'overloaded' })
  assert.deepEqual(await queue.add(5), 5)
  isUnlocked = true
  assert.deepEqual(await Promise.all(waiting), [100, 101, 102, 103])
  await queue.drained()
  const mixed = runs.filter((calls) => calls.some((call) => call >= 100) && calls.some((call) => call < 100))
  assert.deepEqual(mixed, [[100, 101, 1, 2]], 'only the first batch met the lock')
})

test('when a locked group is stopped its calls are given up', async () => {
  const queue = queueOf(
    async () => {
      throw new Locked()
    },
    {
      groups: {
        of: () => 'one',
        isLocked: (error) => error instanceof Locked,
        runUnlocked: async (calls) => calls.map(() => undefined),
        lockedLimit: new ConcurrencyLimit(1),
        queuedMax: 10,
      },
    },
  )
  const given = queue.add(1)
  await new Promise((resolve) => setImmediate(resolve))
  queue.stop()
  await assert.rejects(given, Locked)
  await queue.drained()
})
