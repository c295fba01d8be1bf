import assert from 'node:assert/strict'
import { test } from 'node:test'
import { bodyOf, emptyForm, formProblem, type PlaygroundForm } from './playground-form.ts'

const form: PlaygroundForm = {
  ...emptyForm,
  model: 'gpt-5.6-terra',
  keyId: 'k',
  messages: [{ role: 'user', content: 'Hi' }],
}

test('what is quoted, sent and copied is one body, without what was left empty', () => {
  assert.deepEqual(bodyOf(form), {
    model: 'gpt-5.6-terra',
    messages: [{ role: 'user', content: 'Hi' }],
    max_tokens: 1024,
    stream: true,
    web_search: false,
    web_fetch: false,
  })
  const messages = bodyOf({ ...form, system: 'Be short.', temperature: '0.2' })
  assert.deepEqual(messages.messages[0], { role: 'system', content: 'Be short.' })
  assert.equal(messages.temperature, 0.2)
})

test('an answered conversation is not sent again without a new message', () => {
  const answered = [...form.messages, { role: 'assistant', content: 'Hello.' } as const]
  for (const messages of [answered, [...answered, { role: 'user', content: ' ' } as const]])
    assert.equal(formProblem({ ...form, messages }), 'Enter a message.')
  assert.equal(formProblem({ ...form, messages: [...answered, { role: 'user', content: 'More' }] }), undefined)
})

test('nothing is sent that would be refused for its form', () => {
  assert.equal(formProblem(form), undefined)
  for (const changed of [
    { maxTokens: '0' },
    { maxTokens: '1.5' },
    { temperature: '3' },
    { temperature: 'hot' },
    { keyId: '' },
    { messages: [] },
  ])
    assert.notEqual(formProblem({ ...form, ...changed }), undefined, JSON.stringify(changed))
})
