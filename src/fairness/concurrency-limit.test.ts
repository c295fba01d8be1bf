import assert from 'node:assert/strict'
import { test } from 'node:test'
import { OverloadedError } from '../errors.ts'
import { AccountConcurrencyLimits } from './concurrency-limit.ts'

test('an account waits for its own calls only, in order, and not in an endless queue', async () => {
  const limits = new AccountConcurrencyLimits(1, 1)
  const first = Promise.withResolvers<void>()
  const done: string[] = []
  const running = limits.run('busy', async () => {
    await first.promise
    done.push('first')
  })
  const waiting = limits.run('busy', async () => void done.push('second'))
  await assert.rejects(
    limits.run('busy', async () => {}),
    OverloadedError,
  )
  await limits.run('other', async () => void done.push('other'))
  first.resolve()
  await Promise.all([running, waiting])
  assert.deepEqual(done, ['other', 'first', 'second'])
  assert.equal(await limits.run('busy', async () => 'again'), 'again')
})
