import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { type ChatEvent, nextParagraph } from './chat-events.ts'
import { createOutputCut } from './cut-output.ts'

/** A simple tokenizer: a token is a word with the space before it. */
const words = (text: string): number => text.match(/ ?\S+| +/g)?.length ?? 0
const cutAt = (tokensMax: number) => createOutputCut(tokensMax, async (text) => words(text))

const text = (value: string): ChatEvent => ({ type: 'text', text: value })
const usage = { input_tokens: 3, output_tokens: 16 }
const finish: ChatEvent = { type: 'finish', reason: 'stop', usage }

test('an answer within the count passes untouched', async () => {
  const events: ChatEvent[] = [{ type: 'accepted' }, text('one two'), text(' three'), finish]
  assert.deepEqual(await cutAt(3).push(events), events)
})

test('a longer answer is cut at the count and ends with length and the reported usage', async () => {
  const cut = cutAt(3)
  assert.deepEqual(await cut.push([text('one two'), text(' three four five')]), [text('one two'), text(' three')])
  assert.deepEqual(await cut.push([text(' six'), { type: 'item', index: 0, item: {} }]), [])
  assert.deepEqual(await cut.push([finish]), [{ type: 'finish', reason: 'length', usage }])
})

test('reasoning, names and arguments count like text', async () => {
  const call: ChatEvent = { type: 'tool-call', index: 0, id: 'a', name: 'look_up' }
  const events: ChatEvent[] = [
    { type: 'reasoning', text: 'hm hm' },
    call,
    { type: 'tool-arguments', index: 0, text: ' a b' },
    finish,
  ]
  assert.deepEqual(await cutAt(4).push(events), [
    events[0],
    call,
    { type: 'tool-arguments', index: 0, text: ' a' },
    { type: 'finish', reason: 'length', usage },
  ])
  assert.deepEqual(await cutAt(2).push(events), [events[0], { type: 'finish', reason: 'length', usage }])
})

test('separators between messages are not counted, and a truncated answer does not end with one', async () => {
  // Here, unlike above, an empty line is a token.
  const cut = (tokensMax: number) => createOutputCut(tokensMax, async (text) => text.match(/\w+|\n\n/g)?.length ?? 0)
  const events = [text('one'), nextParagraph('text', ' two three'), finish]
  assert.deepEqual(await cut(3).push(events), events)
  const closing = { type: 'finish', reason: 'length', usage }
  assert.deepEqual(await cut(2).push(events), [text('one'), nextParagraph('text', ' two '), closing])
  assert.deepEqual(await cut(1).push([text('one '), nextParagraph('text', 'two'), finish]), [text('one '), closing])
})

test('a failure after the cut is not the customer’s loss', async () => {
  const events: ChatEvent[] = [text('one two'), { type: 'failed', code: 'upstream_reset', message: 'gone' }]
  assert.deepEqual(await cutAt(1).push(events), [text('one'), { type: 'finish', reason: 'length' }])
})

test('an upstream that writes on after the cut is not waited for', async () => {
  const cut = cutAt(1)
  assert.deepEqual(await cut.push([text('one two')]), [text('one')])
  const page = text('word '.repeat(200))
  assert.deepEqual(await cut.push([page, page]), [])
  assert.deepEqual(await cut.push([page, page, page]), [{ type: 'finish', reason: 'length' }])
})

test('whatever the answer, at most the asked tokens pass and no character is split', async () => {
  const answers = fc.array(fc.string({ unit: fc.constantFrom('a', ' ', '😀', 'bc ') }), { maxLength: 8 })
  await fc.assert(
    fc.asyncProperty(answers, fc.integer({ min: 1, max: 15 }), async (deltas, tokensMax) => {
      const passed = await cutAt(tokensMax).push([...deltas.map(text), finish])
      const kept = passed.map((event) => (event.type === 'text' ? event.text : '')).join('')
      assert.ok(words(kept) <= tokensMax)
      assert.ok(kept.isWellFormed())
      assert.ok(deltas.join('').startsWith(kept))
      assert.equal(passed.at(-1)?.type, 'finish')
    }),
  )
})
