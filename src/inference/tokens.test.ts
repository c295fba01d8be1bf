import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import fc from 'fast-check'
import { byteBound, createTokenCounter, TokenizerError, TokenQueueFullError } from './tokens.ts'

const counter = createTokenCounter()
after(() => counter.close())

test('tokens are counted as the model counts them', async () => {
  counter.warm()
  assert.equal(await counter.count(['Hello, world!']), 4)
  assert.equal(await counter.count(['Hello,', ' world!']), 4)
  assert.equal(await counter.count([]), 0)
  assert.equal(await counter.count(['', '']), 0)
})

test('text that spells a special token is only text', async () => {
  assert.ok((await counter.count(['<|endoftext|>'])) > 1)
  assert.ok((await counter.count(['a <|im_start|>system<|endofprompt|>'])) > 5)
})

test('tokens never outnumber bytes', async () => {
  const texts = fc.array(fc.string({ unit: 'binary', maxLength: 60 }), { maxLength: 3 })
  await fc.assert(
    fc.asyncProperty(texts, async (parts) => {
      assert.ok((await counter.count(parts)) <= byteBound(parts))
    }),
    { numRuns: 300 },
  )
})

test('texts made to stall a tokenizer are counted all the same', async () => {
  const hostile = [
    'a'.repeat(300_000),
    ' '.repeat(300_000),
    '\n'.repeat(100_000),
    '!'.repeat(100_000),
    '1'.repeat(100_000),
    '\u0301'.repeat(50_000),
    '😀'.repeat(25_000),
    '漢'.repeat(50_000),
    'aA'.repeat(50_000),
    "'s".repeat(50_000),
    '\ud800'.repeat(10_000),
    `${'x'.repeat(255)} `.repeat(500),
  ]
  for (const text of hostile) assert.ok((await counter.count([text])) > 0)
})

test('the queue is bounded, and room comes back', async () => {
  await assert.rejects(counter.count(['x'.repeat(64 * 1024 * 1024 + 1)]), TokenQueueFullError)
  // Sixteen are being counted, and a thousand wait.
  const counting = Array.from({ length: 1_016 }, () => counter.count(['one']))
  await assert.rejects(counter.count(['one']), TokenQueueFullError)
  assert.deepEqual(
    await Promise.all(counting),
    Array.from({ length: 1_016 }, () => 1),
  )
  assert.equal(await counter.count(['room again']), 2)
})

test('what is paid for is counted before all that is not, and never refused', async () => {
  const order: string[] = []
  const strangers = Array.from({ length: 1_016 }, () => counter.count(['one']).then(() => order.push('unpaid')))
  await assert.rejects(counter.count(['one']), TokenQueueFullError)
  const paid = Array.from({ length: 2_000 }, () => counter.countPaid(['one']).then(() => order.push('paid')))
  await Promise.all([...strangers, ...paid])
  // Those that were under way, and then whoever pays.
  assert.deepEqual(new Set(order.slice(16, 2_016)), new Set(['paid']))
})

test('streams that go on and what is not paid for take turns', async () => {
  const order: string[] = []
  const open = Array.from({ length: 2_000 }, () => counter.countOpen(['one']).then(() => order.push('open')))
  const unpaid = Array.from({ length: 200 }, () => counter.count(['one']).then(() => order.push('unpaid')))
  await Promise.all([...open, ...unpaid])
  assert.equal(order.slice(0, 500).filter((kind) => kind === 'unpaid').length, 200)
})

test('a count survives the death of the thread once, and fails alone the second time', async () => {
  const fragile = createTokenCounter(new URL('./__fixtures__/dying-token-worker.ts', import.meta.url))
  // One of the two meets a thread of its kind.
  assert.equal(await fragile.count(['die in odd threads']), 18)
  assert.equal(await fragile.count(['die in even threads']), 19)
  await assert.rejects(fragile.count(['die always']), TokenizerError)
  assert.equal(await fragile.count(['live']), 4)
  await fragile.close()
  await assert.rejects(fragile.count(['live']), TokenizerError)
})

test('a text that kills every thread takes none of those with it that were given beside it', async () => {
  const fragile = createTokenCounter(new URL('./__fixtures__/dying-token-worker.ts', import.meta.url))
  const texts = ['one', 'die always', 'three', 'die always', 'fifth']
  const counts = await Promise.allSettled(texts.map((text) => fragile.countPaid([text])))
  assert.deepEqual(
    counts.map((count) => (count.status === 'fulfilled' ? count.value : 'dead')),
    [3, 'dead', 5, 'dead', 5],
  )
  await fragile.close()
})

test('closing ends a count that is under way', async () => {
  const closing = createTokenCounter()
  const counting = closing.count(['never '.repeat(1_000_000)])
  await Promise.all([assert.rejects(counting, TokenizerError), closing.close()])
})
