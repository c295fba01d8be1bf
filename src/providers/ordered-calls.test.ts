import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import type { CallEvent } from '../inference/chat-events.ts'
import { createOrderedCalls } from './ordered-calls.ts'

test('calls are complete and in order, whatever order their pieces arrive in', () => {
  const calls = fc.array(fc.array(fc.string({ minLength: 1 }), { maxLength: 4 }), { minLength: 1, maxLength: 5 })
  fc.assert(
    fc.property(calls, fc.infiniteStream(fc.nat(100)), (pieces, picks) => {
      const ordered = createOrderedCalls()
      const events: CallEvent[] = []
      // Every call begins in order; then the pieces of all of them are dealt at random, each call's own in order.
      for (const index of pieces.keys()) events.push(...ordered.begin(`#${index}`, `id${index}`, `name${index}`))
      const left = pieces.map((texts, index) => ({ index, texts: [...texts] }))
      while (left.length > 0) {
        const position = picks.next().value % left.length
        const { index, texts } = left[position]!
        const text = texts.shift()
        if (text === undefined) left.splice(position, 1)
        events.push(
          ...(text === undefined
            ? ordered.finish(`#${index}`, pieces[index]!.join(''))
            : ordered.add(`#${index}`, text)!),
        )
      }
      assert.deepEqual(
        events.map((event) => event.index),
        [...events.map((event) => event.index)].sort((a, b) => a - b),
        'no call goes on after the next has begun',
      )
      for (const [index, texts] of pieces.entries()) {
        const own = events.filter((event) => event.index === index)
        assert.equal(own[0]?.type, 'tool-call')
        assert.equal(own.map((event) => ('text' in event ? event.text : '')).join(''), texts.join(''))
      }
    }),
  )
})

test('pieces of a call that never began are ignored', () => {
  const ordered = createOrderedCalls()
  assert.deepEqual(ordered.add('#7', '{}'), [])
  assert.deepEqual(ordered.finish('#7', '{}'), [])
})
