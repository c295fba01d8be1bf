import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { HiddenReasoning, type SeenRound } from './hidden-reasoning.ts'

/** A round of a provider that neither shows nor seals its reasoning, cut off after its first output. */
const round: SeenRound = {
  provider: 'p',
  model: 'm',
  effort: 'low',
  sealedBytes: 0,
  silentMs: 0,
  hasOutput: true,
  reasonedMs: 0,
  hasAnswer: true,
  seals: false,
  showsReasoning: false,
}
const sealed = (sealedBytes: number, of: Partial<SeenRound> = {}): SeenRound => ({
  ...round,
  sealedBytes,
  seals: true,
  ...of,
})
const silent = (seconds: number, of: Partial<SeenRound> = {}): SeenRound => ({
  ...round,
  silentMs: 1_000 * seconds,
  reasonedMs: 1_000 * seconds,
  ...of,
})

function learn(reasoning: HiddenReasoning, seen: SeenRound, tokens: number, answers = 8): void {
  for (let answer = 0; answer < answers; answer += 1) reasoning.learn(seen, tokens)
}

test('until a ratio is learned, ten encrypted bytes count as a token', () => {
  const reasoning = new HiddenReasoning()
  assert.deepEqual(
    [9, 10, 1_000].map((bytes) => reasoning.estimate(sealed(bytes))),
    [0, 1, 100],
  )
})

test('the ratio is learned from eight whole answers of one provider, model and effort', () => {
  const reasoning = new HiddenReasoning()
  learn(reasoning, sealed(10_000), 2_000, 7)
  assert.equal(reasoning.estimate(sealed(1_000)), 100)
  reasoning.learn(sealed(10_000), 2_000)
  assert.equal(reasoning.estimate(sealed(1_000)), 200)
  for (const other of [{ provider: 'q' }, { model: 'n' }, { effort: 'high' }]) {
    assert.equal(reasoning.estimate(sealed(1_000, other)), 100)
  }
})

test('the ratio is not learned from short items: many tiny answers cannot make long reasoning cheap', () => {
  const reasoning = new HiddenReasoning()
  learn(reasoning, sealed(4_095), 1, 100)
  assert.equal(reasoning.estimate(sealed(1_000)), 100)
})

test('easy questions do not make hard ones cheap: only answers that were silent as long count', () => {
  const reasoning = new HiddenReasoning()
  learn(reasoning, silent(0.5), 3, 64)
  assert.equal(reasoning.needsReport(silent(100)), true)
  learn(reasoning, silent(127), 20_000)
  assert.deepEqual([reasoning.estimate(silent(64)), reasoning.needsReport(silent(64))], [20_000, false])
  assert.equal(reasoning.estimate(silent(0.9)), 3)
})

test('a provider that still reasons has written as much as whole answers that began sooner, and of others the share of its time', () => {
  for (const seals of [false, true]) {
    const still = (seconds: number, of: Partial<SeenRound> = {}) =>
      silent(seconds, { seals, hasOutput: false, hasAnswer: false, ...of })
    const reasoning = new HiddenReasoning()
    assert.equal(reasoning.estimate(still(100)), 0)
    const whole = { seals, sealedBytes: seals ? 100_000 : 0 }
    learn(reasoning, silent(0.5, whole), 3, 64)
    learn(reasoning, silent(127, whole), 20_000)
    assert.deepEqual(
      [0.5, 1, 64, 128, 100_000].map((seconds) => reasoning.estimate(still(seconds))),
      [78, 156, 10_000, 20_000, 20_000],
    )
    assert.equal(reasoning.estimate(still(64, { effort: 'high' })), 0)
    // Its summary is part of encrypted reasoning.
    if (seals) assert.equal(reasoning.estimate(still(64, { hasOutput: true }), 500), 10_000)
  }
})

test('only a report tells how much was reasoned where too few answers are known, nothing is shown and output has begun', () => {
  const reasoning = new HiddenReasoning()
  assert.equal(reasoning.needsReport(round), true)
  assert.equal(reasoning.needsReport({ ...round, showsReasoning: true }), false)
  assert.equal(reasoning.needsReport({ ...round, hasOutput: false }), false)
})

test('for at least three quarters of the answers it learned from, the estimate is a lower bound', () => {
  const answer = fc.record({
    bytes: fc.integer({ min: 4_096, max: 500_000 }),
    tokens: fc.integer({ min: 0, max: 64_000 }),
  })
  fc.assert(
    fc.property(fc.array(answer, { minLength: 8, maxLength: 64 }), (answers) => {
      const reasoning = new HiddenReasoning()
      for (const { bytes, tokens } of answers) reasoning.learn(sealed(bytes), tokens)
      const under = answers.filter(({ bytes, tokens }) => reasoning.estimate(sealed(bytes)) <= tokens).length
      assert.ok(under >= (answers.length * 3) / 4 - 1)
    }),
  )
})
