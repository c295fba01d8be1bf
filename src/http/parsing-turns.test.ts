import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ParsingTurns } from './parsing-turns.ts'

const loopGoesOn = () => new Promise((resolve) => setImmediate(resolve))

test('an account parses for a quarter of the time at most, and others need not wait for it', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] })
  let nowMs = 0
  const turns = new ParsingTurns(() => nowMs)
  const order: string[] = []
  const ask = (account: string, name: string) => void turns.wait(account).then(() => order.push(name))
  for (const name of ['first', 'second', 'third']) ask('greedy', name)
  ask('honest', 'other')
  // The first one is parsed for ten milliseconds before the loop goes on.
  nowMs += 10
  await loopGoesOn()
  assert.deepEqual(order, ['first', 'other'])
  t.mock.timers.tick(29)
  await loopGoesOn()
  assert.deepEqual(order, ['first', 'other'])
  t.mock.timers.tick(1)
  await loopGoesOn()
  assert.deepEqual(order, ['first', 'other', 'second'])
  t.mock.timers.tick(1)
  await loopGoesOn()
  t.mock.timers.tick(1)
  ask('greedy', 'fourth')
  await loopGoesOn()
  assert.deepEqual(order, ['first', 'other', 'second', 'third', 'fourth'])
})
