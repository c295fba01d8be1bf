import assert from 'node:assert/strict'
import { test } from 'node:test'
import { watchStopSignals } from './stop-signal.ts'

test('signals within a second are one; a later one asks to hurry', () => {
  let nowMs = 0
  const { stop, hurry } = watchStopSignals(() => nowMs)
  const steps: readonly (readonly [number, NodeJS.Signals, boolean])[] = [
    [0, 'SIGTERM', false],
    [10, 'SIGTERM', false],
    [400, 'SIGINT', false],
    [999, 'SIGTERM', false],
    [1_000, 'SIGINT', true],
    [1_001, 'SIGINT', true],
  ]
  for (const [atMs, signal, isHurried] of steps) {
    nowMs = atMs
    process.emit(signal)
    assert.deepEqual([stop.aborted, hurry.aborted], [true, isHurried], `${signal} at ${atMs}`)
  }
})
