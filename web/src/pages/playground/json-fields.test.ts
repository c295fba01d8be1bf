import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parseSchema, parseTools } from './json-fields.ts'

const definition = { name: 'get_weather', parameters: { type: 'object', properties: { city: { type: 'string' } } } }
const wrapped = { type: 'function', function: definition }

test('tools are understood as people have them: one or a list, bare or wrapped', () => {
  assert.deepEqual(parseTools(' ').value, [])
  for (const given of [definition, [definition], wrapped, [wrapped], { type: 'function', ...definition }])
    assert.deepEqual(parseTools(JSON.stringify(given)).value, [wrapped])
})

test('a tool that the service would refuse is named with what is wrong', () => {
  for (const [given, problem] of [
    ['[', /not valid JSON/],
    ['"text"', /Tool 1 must be a function definition/],
    ['[{"name": "ok"}, {"name": "not ok"}]', /Tool 2 needs a "name"/],
    ['[{"name": "a"}, {"name": "a"}]', /Two tools are named "a"/],
    ['{"name": "a", "parameters": []}', /"parameters" of "a"/],
    [JSON.stringify(Array.from({ length: 129 }, (_, at) => ({ name: `t${at}` }))), /at most 128/],
  ] as const)
    assert.match(parseTools(given).problem!, problem)
})

test('a schema comes bare, named, or in the envelope of the API', () => {
  const schema = { type: 'object', properties: {} }
  assert.deepEqual(parseSchema(JSON.stringify(schema)).value, { name: 'answer', schema })
  const named = { name: 'person', schema, strict: true }
  assert.deepEqual(parseSchema(JSON.stringify(named)).value, named)
  assert.deepEqual(parseSchema(JSON.stringify({ type: 'json_schema', json_schema: named })).value, named)
})

test('a schema that cannot be one is refused before it costs anything', () => {
  for (const [given, problem] of [
    ['{', /not valid JSON/],
    ['[]', /is an object/],
    ['{"type": "dict"}', /"dict" is not a JSON schema type/],
    ['{"properties": []}', /"properties"/],
    ['{"name": "no good!", "schema": {}}', /"name"/],
    ['{"schema": 5}', /"schema" must be an object/],
  ] as const)
    assert.match(parseSchema(given).problem!, problem)
})
