import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { LogEntry } from '../../api/shapes.ts'
import { logSentence } from './log-sentence.ts'

const entry = (event: LogEntry['event'], facts: LogEntry['facts'], name: string | null = 'Ada'): LogEntry => ({
  object: 'log_entry',
  id: '00000000-0000-4000-8000-000000000000',
  event,
  actor: { kind: name === null ? 'service' : 'person', id: null, name },
  method: null,
  network: null,
  facts,
  created_at: '2026-11-17T10:00:00.000Z',
})

test('an entry of the account log is a sentence that says who did what', () => {
  assert.equal(logSentence(entry('key_created', { name: 'CI' })), 'Ada created the key “CI”')
  assert.equal(
    logSentence(entry('member_changed', { name: 'Bob', role: 'viewer' })),
    'Ada changed the member “Bob” as viewer',
  )
  assert.equal(logSentence(entry('member_joined', { name: 'Bob', role: 'developer' }, null)), 'Bob joined as developer')
  assert.equal(
    logSentence(entry('alert_email_set', { name: 'ops@example.com' })),
    'Ada set the e-mail address for alerts “ops@example.com”',
  )
  assert.equal(
    logSentence(entry('refused', { operation: 'createWithdrawal', needed: 'owner' })),
    'Ada was refused a withdrawal, which needs the role owner',
  )
})
