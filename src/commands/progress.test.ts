import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createProgress } from './progress.ts'

function record(isTTY: boolean) {
  let nowMs = 0
  let written = ''
  const progress = createProgress({ isTTY, write: (text: string) => (written += text) }, () => nowMs)
  return { progress, advance: (ms: number) => (nowMs += ms), written: () => written }
}

test('in a terminal every step keeps its line, with the time until the next one', () => {
  const { progress, advance, written } = record(true)
  progress.step('Starting the signer.')
  advance(1_500)
  progress.step('Starting settlement.')
  advance(4_000)
  progress.end()
  progress.end()
  // What a terminal shows: a carriage return starts the line over.
  const shown = written()
    .split('\n')
    .map((line) => line.split('\r\x1b[2K').at(-1))
  assert.deepEqual(shown, ['  Starting the signer … 1.5 s', '  Starting settlement … 4.0 s', ''])
})

test('in a pipe or a journal a step is one plain line', () => {
  const { progress, written } = record(false)
  progress.step('Starting the signer.')
  progress.step('Starting settlement.')
  progress.end()
  assert.equal(written(), '  Starting the signer.\n  Starting settlement.\n')
})
