import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { type AlertKind, alertKindNames, alertKinds, decide, initialRule } from './kinds.ts'

function ruleOf(kind: AlertKind, threshold: bigint) {
  return { kind, threshold, rearm: alertKinds[kind].rearm(threshold), isInitial: false }
}

/** What the alert does at each value, from not fired on. */
function courseOf(kind: AlertKind, threshold: bigint, values: readonly bigint[]) {
  let isFired = false
  return values.map((value) => {
    const decision = decide(ruleOf(kind, threshold), value, isFired)
    if (decision !== undefined) isFired = decision === 'fire'
    return decision ?? '-'
  })
}

test('an alert fires once, however its value moves around the threshold, and again after the re-arm level', () => {
  assert.deepEqual(courseOf('balance_below', 100n, [100n, 99n, 101n, 99n, 110n, 111n, 99n]), [
    ...['-', 'fire', '-', '-', '-', 'resolve', 'fire'],
  ])
  assert.deepEqual(courseOf('spend_day', 100n, [99n, 100n, 90n, 100n, 80n, 79n, 100n]), [
    ...['-', 'fire', '-', '-', '-', 'resolve', 'fire'],
  ])
})

test('every kind that fires at a value is not resolved by the same value', () => {
  fc.assert(
    fc.property(
      fc.constantFrom(...alertKindNames),
      fc.bigInt(1n, 1_000n),
      fc.bigInt(0n, 2_000n),
      (kind, any, value) => {
        const { max } = alertKinds[kind]
        const rule = ruleOf(kind, any > max ? max : any)
        if (decide(rule, value, false) === 'fire') assert.equal(decide(rule, value, true), undefined)
      },
    ),
  )
})

test('a rule that is turned off, or has nothing to measure, resolves what it fired', () => {
  const off = { ...initialRule('spend_day') }
  assert.deepEqual([decide(off, 5n, true), decide(off, 5n, false)], ['resolve', undefined])
  assert.equal(decide(initialRule('key_limit'), undefined, true), 'resolve')
})
