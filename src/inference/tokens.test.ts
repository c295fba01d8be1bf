import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { after, test } from 'node:test'
import fc from 'fast-check'
import { countTokens } from 'gpt-tokenizer/encoding/o200k_base'
import { OverloadedError } from '../errors.ts'
import { ShareUsedUpError } from '../fairness/shares.ts'
import { byteBound, createTokenCounter, TokenizerError } from './tokens.ts'

const counter = createTokenCounter()
after(() => counter.close())

const account = 'a'
const count = (texts: readonly string[], of = account) => counter.count(texts, { account: of })

test('tokens are counted as the model counts them', async () => {
  counter.warm()
  assert.equal(await count(['Hello, world!']), 4)
  assert.equal(await count(['Hello,', ' world!']), 4)
  assert.equal(await count([]), 0)
  assert.equal(await count(['', '']), 0)
})

test('on Linux counting yields to the event loop: its thread has a lower priority, and the others keep theirs', async () => {
  if (process.platform !== 'linux') return
  const niceOf = (thread: string) =>
    Number(readFileSync(`/proc/self/task/${thread}/stat`, 'utf8').split(') ')[1]!.split(' ')[16])
  await count(['Hello, world!'])
  const own = niceOf(String(process.pid))
  const lower = readdirSync('/proc/self/task').filter((thread) => niceOf(thread) !== own)
  assert.deepEqual([...new Set(lower.map(niceOf))], own === 19 ? [] : [Math.min(19, own + 10)])
})

test('text that spells a special token is only text', async () => {
  assert.ok((await count(['<|endoftext|>'])) > 1)
  assert.ok((await count(['a <|im_start|>system<|endofprompt|>'])) > 5)
})

test('tokens never outnumber bytes', async () => {
  const texts = fc.array(fc.string({ unit: 'binary', maxLength: 60 }), { maxLength: 3 })
  await fc.assert(
    fc.asyncProperty(texts, async (parts) => {
      assert.ok((await count(parts)) <= byteBound(parts))
    }),
    { numRuns: 300 },
  )
})

test('texts made to stall a tokenizer are still counted', async () => {
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
  for (const text of hostile) assert.ok((await count([text])) > 0)
})

test('a text is counted in slices, which have as many tokens together as the whole', async () => {
  const plain = (text: string) => countTokens(text, { disallowedSpecial: new Set<string>() })
  const word = fc.string({ unit: 'grapheme', minLength: 1, maxLength: 12 })
  const separator = fc.constantFrom(
    ' ',
    ' ',
    ' ',
    '  ',
    '\n',
    '. ',
    ' (',
    "'s ",
    ' 1234567 ',
    '\t',
    '/',
    ' \r\n ',
    ' and ',
  )
  const texts = fc.array(fc.tuple(word, separator), { minLength: 50, maxLength: 100 })
  await fc.assert(
    fc.asyncProperty(texts, async (pairs) => {
      const text = pairs
        .map((pair) => pair.join(''))
        .join('')
        .repeat(50)
      assert.equal(await count([text, text.slice(0, 100), '', text]), 2 * plain(text) + plain(text.slice(0, 100)))
    }),
    { numRuns: 20 },
  )
})

test('a long text of one account delays neither another account nor paid texts', async () => {
  const over: string[] = []
  const isOver = (name: string) => () => over.push(name)
  const long = count(['ordinary words '.repeat(200_000)], 'greedy').then(isOver('long'))
  const short = count(['a short text '.repeat(500)], 'honest').then(isOver('short'))
  const paid = counter.countPaid(['paid'], account).then(isOver('paid'))
  await Promise.all([long, short, paid])
  assert.deepEqual(over, ['paid', 'short', 'long'])
})

for (const lane of ['countPaid', 'countOpen'] as const) {
  test(`${lane}: a long text of one account does not delay another account`, async () => {
    const over: string[] = []
    const long = counter[lane](['ordinary words '.repeat(20_000)], 'greedy').then(() => over.push('long'))
    const short = counter[lane](['a short text'], 'honest').then(() => over.push('short'))
    await Promise.all([long, short])
    assert.deepEqual(over, ['short', 'long'])
  })
}

test('counting stops beyond the most tokens that matter', async () => {
  const tokens = await counter.count(['word '.repeat(800_000)], { account, tokensMax: 5_000 })
  assert.ok(tokens > 5_000 && tokens < 20_000, String(tokens))
  assert.equal(await counter.count(['word'], { account, tokensMax: 1 }), 1)
})

test('the prompt of a disconnected client is not counted', async () => {
  const controller = new AbortController()
  const { signal } = controller
  const left = new Error('left')
  const long = 'word '.repeat(800_000)
  const counts = [0, 1].map((number) => counter.count([long], { account: `of ${number}`, signal }))
  controller.abort(left)
  for (const counted of counts) await assert.rejects(counted, left)
  await assert.rejects(counter.count(['word'], { account, signal }), left)
  // Their capacity is free again, and nothing of them is left in the queue.
  assert.equal(await count(['word'], 'of 0'), 1)
  assert.equal(await counter.count([long.slice(0, 50)], { account: 'of 0', signal: new AbortController().signal }), 11)
})

test('the queue is bounded, also for each account, and room comes back', async () => {
  await assert.rejects(count(['x'.repeat(64 * 1024 * 1024 + 1)]), OverloadedError)
  const waiting = new AbortController()
  const { signal } = waiting
  const two = [
    counter.count(['x '.repeat(2 ** 20)], { account, signal }),
    counter.count(['x '.repeat(2 ** 20)], { account, signal }),
  ]
  await assert.rejects(count(['x']), ShareUsedUpError)
  assert.equal(await count(['x'], 'other'), 1)
  waiting.abort()
  await Promise.allSettled(two)
  const counting = Array.from({ length: 250 }, () => count(['one']))
  await assert.rejects(count(['one']), ShareUsedUpError)
  const others = Array.from({ length: 750 }, (_, number) => count(['one'], `other ${number}`))
  await assert.rejects(count(['one'], 'one more'), OverloadedError)
  const counted = await Promise.all([...counting, ...others])
  assert.ok(counted.every((tokens) => tokens === 1))
  assert.equal(await count(['room again']), 2)
})

test('paid texts are counted before unpaid ones, and never refused', async () => {
  const order: string[] = []
  const ask = (_: unknown, number: number) => count(['one'], `of ${number}`).then(() => order.push('unpaid'))
  const strangers = Array.from({ length: 1_000 }, ask)
  await assert.rejects(count(['one']), OverloadedError)
  const paid = Array.from({ length: 2_000 }, () => counter.countPaid(['one'], account).then(() => order.push('paid')))
  await Promise.all([...strangers, ...paid])
  // First the slices in progress, then paid work.
  assert.deepEqual(new Set(order.slice(16, 2_016)), new Set(['paid']))
})

test('continuing streams and unpaid texts take turns', async () => {
  const order: string[] = []
  const open = Array.from({ length: 2_000 }, () => counter.countOpen(['one'], account).then(() => order.push('open')))
  const unpaid = Array.from({ length: 200 }, () => count(['one']).then(() => order.push('unpaid')))
  await Promise.all([...open, ...unpaid])
  assert.equal(order.slice(0, 500).filter((kind) => kind === 'unpaid').length, 200)
})

test('a count survives one death of its thread, and only it fails after the second', async () => {
  const fragile = createTokenCounter(new URL('./__fixtures__/dying-token-worker.ts', import.meta.url))
  // One of the two runs in a thread that it kills.
  assert.equal(await fragile.countPaid(['die in odd threads'], account), 18)
  assert.equal(await fragile.countPaid(['die in even threads'], account), 19)
  await assert.rejects(fragile.countPaid(['die always'], account), TokenizerError)
  assert.equal(await fragile.countPaid(['live'], account), 4)
  await fragile.close()
  await assert.rejects(fragile.countPaid(['live'], account), TokenizerError)
})

test('a text that kills every thread does not fail the texts queued beside it', async () => {
  const fragile = createTokenCounter(new URL('./__fixtures__/dying-token-worker.ts', import.meta.url))
  const texts = ['one', 'die always', 'three', 'die always', 'fifth']
  const counts = await Promise.allSettled(texts.map((text) => fragile.countPaid([text], account)))
  assert.deepEqual(
    counts.map((count) => (count.status === 'fulfilled' ? count.value : 'dead')),
    [3, 'dead', 5, 'dead', 5],
  )
  await fragile.close()
})

test('closing ends a count that is under way', async () => {
  const closing = createTokenCounter()
  const counting = closing.countPaid(['never '.repeat(1_000_000)], account)
  await Promise.all([assert.rejects(counting, TokenizerError), closing.close()])
})
