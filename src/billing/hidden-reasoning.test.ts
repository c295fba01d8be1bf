import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { HiddenReasoning } from './hidden-reasoning.ts'

test('until a ratio is learned, ten encrypted bytes count as a token', () => {
  const reasoning = new HiddenReasoning()
  assert.deepEqual(
    [0, 9, 10, 1_000].map((bytes) => reasoning.estimate('m', bytes)),
    [0, 0, 1, 100],
  )
})

test('the ratio of a model is learned from eight complete answers of that model', () => {
  const reasoning = new HiddenReasoning()
  for (let answer = 0; answer < 7; answer += 1) reasoning.learn('m', 10_000, 2_000)
  assert.equal(reasoning.estimate('m', 1_000), 100)
  reasoning.learn('m', 10_000, 2_000)
  assert.deepEqual([reasoning.estimate('m', 1_000), reasoning.estimate('other', 1_000)], [200, 100])
})

test('the ratio is not learned from short items: many tiny answers cannot make long reasoning cheap', () => {
  const reasoning = new HiddenReasoning()
  for (let answer = 0; answer < 100; answer += 1) reasoning.learn('m', 4_095, 1)
  assert.equal(reasoning.estimate('m', 1_000), 100)
})

test('for at least three quarters of the answers it learned from, the estimate is a lower bound', () => {
  const answer = fc.record({
    bytes: fc.integer({ min: 4_096, max: 500_000 }),
    tokens: fc.integer({ min: 0, max: 64_000 }),
  })
  fc.assert(
    fc.property(fc.array(answer, { minLength: 8, maxLength: 64 }), (answers) => {
      const reasoning = new HiddenReasoning()
      for (const { bytes, tokens } of answers) reasoning.learn('m', bytes, tokens)
      const under = answers.filter(({ bytes, tokens }) => reasoning.estimate('m', bytes) <= tokens).length
      assert.ok(under >= (answers.length * 3) / 4 - 1)
    }),
  )
})
