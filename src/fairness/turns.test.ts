import assert from 'node:assert/strict'
import { test } from 'node:test'
import { OverloadedError } from '../errors.ts'
import { AccountTurns } from './turns.ts'

test('an account waits for its own calls only, in order, and not in an endless queue', async () => {
  const turns = new AccountTurns(1, 1)
  const first = Promise.withResolvers<void>()
  const done: string[] = []
  const running = turns.take('busy', async () => {
    await first.promise
    done.push('first')
  })
  const waiting = turns.take('busy', async () => void done.push('second'))
  await assert.rejects(
    turns.take('busy', async () => {}),
    OverloadedError,
  )
  await turns.take('other', async () => void done.push('other'))
  first.resolve()
  await Promise.all([running, waiting])
  assert.deepEqual(done, ['other', 'first', 'second'])
  assert.equal(await turns.take('busy', async () => 'again'), 'again')
})
