import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { test } from 'node:test'
import { codeFor, firstCall, languages } from './code.ts'

const call = {
  baseUrl: 'http://localhost:8402/v1',
  apiKey: 'penny_secret',
  body: {
    model: 'm',
    messages: [{ role: 'user', content: `It's "quoted" — $HOME \\ end` }],
    stream: true,
    web_search: false,
  },
}

const session = { base_url: 'http://localhost:8402/v1', default_model: 'a-model-of-the-operator' }

test('every snippet names the base address, the key and the model', () => {
  for (const [language] of languages) {
    const code = codeFor(language, firstCall(session, 'penny_x'))
    for (const part of [session.base_url, 'penny_x', session.default_model, 'What is a penny?'])
      assert.ok(code.includes(part), `${language}: ${part}`)
  }
})

test('the curl snippet sends exactly the body, whatever the prompt contains', () => {
  const command = codeFor('curl', call).replace('curl ', 'printf "%s\\n" ')
  const printed = execFileSync('sh', ['-c', command], { encoding: 'utf8' })
  assert.deepEqual(JSON.parse(printed.slice(printed.indexOf('{'))), call.body)
})

test('Python gets its own literals, and our own parameters through extra_body', () => {
  const code = codeFor('python', call)
  assert.match(code, /stream=True/)
  assert.match(code, /extra_body=\{"web_search": False\}/)
})

test('a key that is named and not known is read from the environment, in every language', () => {
  const named = { ...call, apiKey: '$OPENAI_API_KEY' }
  assert.match(codeFor('curl', named), /Bearer \$OPENAI_API_KEY"/)
  assert.match(codeFor('python', named), /^import os\n/)
  assert.match(codeFor('python', named), /api_key=os\.environ\["OPENAI_API_KEY"\]\)/)
  for (const language of ['node', 'ai-sdk'] as const)
    assert.match(codeFor(language, named), /apiKey: process\.env\.OPENAI_API_KEY \}/)
  for (const language of ['python', 'node', 'ai-sdk'] as const)
    assert.ok(!codeFor(language, named).includes('$OPENAI'), language)
})

test('Go sends exactly the body, backticks included', () => {
  const body = { ...call.body, messages: [{ role: 'user', content: 'Use `code` and ```fences```' }] }
  const code = codeFor('go', { ...call, body, apiKey: '$OPENAI_API_KEY' })
  const [, literal] = /const body = (`.*`)\n\nfunc main/s.exec(code)!
  const text = literal!.replace(/` \+ "`" \+ `/g, '\0').slice(1, -1)
  assert.ok(!text.includes('`'))
  assert.deepEqual(JSON.parse(text.replaceAll('\0', '`')), body)
  assert.match(code, /option\.WithAPIKey\(os\.Getenv\("OPENAI_API_KEY"\)\)/)
  assert.match(code, /NewStreaming/)
  assert.doesNotMatch(codeFor('go', { ...call, body: { ...body, stream: false } }), /NewStreaming/)
})
