import assert from 'node:assert/strict'
import { test } from 'node:test'
import { every, everyAtPace } from './every.ts'

const pace = { busyMs: 100, idleTurns: 3, busyTurns: 2 }

test('idle work is repeated less often, and often again once something is in progress', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] })
  let [looks, isUnderWay] = [0, false]
  const job = everyAtPace(
    pace,
    async () => {
      looks += 1
      return isUnderWay
    },
    assert.ifError,
  )
  const looksIn = async (turns: number) => {
    looks = 0
    for (let turn = 0; turn < turns; turn += 1) {
      t.mock.timers.tick(pace.busyMs)
      await new Promise(setImmediate)
    }
    return looks
  }
  assert.equal(await looksIn(2), 2, 'often at first')
  assert.equal(await looksIn(10), 4)
  isUnderWay = true
  assert.equal(await looksIn(3), 1, 'at its turn')
  assert.equal(await looksIn(5), 5)
  isUnderWay = false
  assert.equal(await looksIn(2), 2, 'for a while')
  assert.ok((await looksIn(9)) <= 3)
  await job.stop()
})

test('work that fails is reported and repeated, one run at a time', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] })
  const errors: unknown[] = []
  const job = every(
    10,
    () => Promise.reject(new Error('no')),
    (error) => errors.push(error),
  )
  for (let turn = 0; turn < 3; turn += 1) {
    t.mock.timers.tick(10)
    await new Promise(setImmediate)
  }
  assert.equal(errors.length, 3)
  await job.stop()
})

test('the first run can come early; the others keep their interval, and none follows a stop', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval', 'setTimeout'] })
  const startEarly = (runs: number[]) => every(100, async () => runs.push(1), assert.ifError, 10)
  const [runs, stoppedRuns]: [number[], number[]] = [[], []]
  const job = startEarly(runs)
  await startEarly(stoppedRuns).stop()
  for (const [ms, expected] of [
    [9, 0],
    [1, 1],
    [89, 1],
    [1, 2],
    [100, 3],
  ] as const) {
    t.mock.timers.tick(ms)
    await new Promise(setImmediate)
    assert.equal(runs.length, expected)
  }
  assert.equal(stoppedRuns.length, 0)
  await job.stop()
})

// What woke it may have come after that run had looked.
test('work that is woken runs now, idle or not, and once more when it was running', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] })
  const runs: PromiseWithResolvers<boolean>[] = []
  const job = everyAtPace(
    { busyMs: 100, idleTurns: 10, busyTurns: 0 },
    () => {
      const run = Promise.withResolvers<boolean>()
      runs.push(run)
      return run.promise
    },
    assert.ifError,
  )
  job.wake()
  assert.equal(runs.length, 1)
  job.wake()
  job.wake()
  assert.equal(runs.length, 1)
  runs[0]!.resolve(false)
  await new Promise(setImmediate)
  assert.equal(runs.length, 2)
  runs[1]!.resolve(false)
  await new Promise(setImmediate)
  assert.equal(runs.length, 2)
  await job.stop()
  job.wake()
  assert.equal(runs.length, 2)
})
