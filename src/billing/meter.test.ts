import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type ChatEvent, nextParagraph } from '../inference/chat-events.ts'
import { Meter } from './meter.ts'

test('what parts two messages or two thoughts is ours and not billed; the model’s own empty lines are', () => {
  const meter = new Meter(() => 0, 100)
  const events: ChatEvent[] = [
    { type: 'reasoning', text: 'One' },
    nextParagraph('reasoning', 'Two'),
    { type: 'reasoning', text: '\n\nThree' },
    { type: 'text', text: 'Let me look.' },
    nextParagraph('text', 'The answer'),
    { type: 'text', text: '\n\nis 4.' },
  ]
  meter.see(events)
  assert.equal(meter.reasoningText, 'OneTwo\n\nThree')
  assert.equal(meter.answerText, 'Let me look.The answer\n\nis 4.')
})
