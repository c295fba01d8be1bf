import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import fc from 'fast-check'
import { InvalidJsonError, parseJsonBody } from './json-body.ts'

const bytes = (text: string) => Buffer.from(text, 'utf8')

function refusal(body: Uint8Array): InvalidJsonError {
  try {
    parseJsonBody(body)
  } catch (error) {
    assert.ok(error instanceof InvalidJsonError, `threw ${String(error)}`)
    assert.equal(error.code, 'invalid_json')
    return error
  }
  assert.fail('the body was accepted')
}

test('any JSON object is read as it was written', () => {
  const objects = fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 5 }))
  fc.assert(
    fc.property(objects, (object) => {
      const text = JSON.stringify(object)
      assert.deepEqual(parseJsonBody(bytes(text)), JSON.parse(text))
    }),
  )
})

test('any bytes give an object or a refusal, never another error', () => {
  const bodies = fc.oneof(
    fc.uint8Array({ maxLength: 200 }),
    fc.string({ unit: 'binary' }).map(bytes),
    fc.json().map((json) => bytes(json.slice(0, -1))),
    fc
      .array(fc.constantFrom('{', '}', '[', ']', '"', ':', ',', '\\', '1', 'true', ' ', '\n'), { maxLength: 40 })
      .map((tokens) => bytes(tokens.join(''))),
  )
  fc.assert(
    fc.property(bodies, (body) => {
      assert.ok(isReadOrRefused(() => parseJsonBody(body)))
    }),
    { numRuns: 2_000 },
  )
})

// Texts that every JSON parser must accept (y), must refuse (n), or may do either with (i).
type Vector = { readonly name: string; readonly text?: string; readonly times?: number; readonly base64?: string }

test('each text of JSONTestSuite is accepted as a value exactly when it is JSON', () => {
  const file = new URL('./__fixtures__/json-test-suite.json', import.meta.url)
  const { tests } = JSON.parse(readFileSync(file, 'utf8')) as { readonly tests: readonly Vector[] }
  for (const { name, text, times = 1, base64 } of tests) {
    const value = base64 === undefined ? bytes(text!.repeat(times)) : Buffer.from(base64, 'base64')
    const parse = () => parseJsonBody(Buffer.concat([bytes('{"x":'), value, bytes('}')]))
    if (name.startsWith('y')) assert.doesNotThrow(parse, name)
    else if (name.startsWith('n')) assert.throws(parse, InvalidJsonError, name)
    else assert.ok(isReadOrRefused(parse), name)
    assert.ok(
      isReadOrRefused(() => parseJsonBody(value)),
      name,
    )
  }
})

function isReadOrRefused(parse: () => unknown): boolean {
  try {
    return typeof parse() === 'object'
  } catch (error) {
    return error instanceof InvalidJsonError
  }
}

test('a mistake is reported with its position', () => {
  for (const [text, position] of [
    ['{"a": }', 6],
    ['{"a": x}', 6],
    ['{"a": 1,}', 8],
    ['{"a" 1}', 5],
    ['{"a": [1, 2}', 11],
    ['{"a": {"b": tru}}', 12],
    ['{"a": 1} trailing', 9],
    ['{"a": "unfinished', 17],
    ['{"a": 01}', 7],
    ['{a: 1}', 1],
    ['{"a": 1', 7],
    ['', undefined],
  ] as const) {
    const { message } = refusal(bytes(text))
    if (position === undefined) assert.match(message, /empty/)
    else assert.match(message, new RegExp(`at position ${position}\\.$`), `${text}: ${message}`)
  }
})

// V8 quotes only the token here. Finding the position takes a second pass, whose time grows with the text.
test('the place of a mistake is looked for in a short text, and in a long one named where that costs nothing', () => {
  const list = (length: number) => `{"a": [${'1,'.repeat(length / 2)}`
  assert.match(refusal(bytes(`${list(1_000)}x]}`)).message, /"x" is not expected at position 1007\.$/)
  assert.equal(refusal(bytes(`${list(70_000)}x]}`)).message, 'The request body is not valid JSON.')
  assert.match(refusal(bytes(`${list(70_000)}1`)).message, /the text ends too early at position 70008\.$/)
})

test('only a JSON object is a request', () => {
  for (const text of ['[]', '"text"', '7', 'null', 'true'])
    assert.match(refusal(bytes(text)).message, /Send a JSON object/)
})

test('bytes that are not UTF-8 are refused, and a byte order mark is no mistake', () => {
  assert.match(refusal(Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x7d])).message, /UTF-8/)
  assert.deepEqual(parseJsonBody(Buffer.from('\ufeff{"a":1}', 'utf8')), { a: 1 })
})

test('nesting is bounded before anything recurses over it', () => {
  const nested = (depth: number) => bytes(`{"a":${'['.repeat(depth - 1)}${']'.repeat(depth - 1)}}`)
  assert.ok(parseJsonBody(nested(64)))
  assert.match(refusal(nested(65)).message, /deeper than 64/)
  assert.match(refusal(bytes('['.repeat(2_000_000))).message, /deeper than 64/)
  assert.ok(
    parseJsonBody(bytes(`{"a":"${'['.repeat(1000)}\\"${'{'.repeat(1000)}"}`)),
    'brackets inside a string do not nest',
  )
})

test('names and values are counted, before anything parses them', () => {
  const many = (count: number) => bytes(`{"metadata":[${Array(count).fill('{}').join(',')}]}`)
  // Each of them has a bracket and, but for the first, a comma. Around them are two brackets and a colon.
  assert.ok(parseJsonBody(many(74_999)))
  assert.match(refusal(many(75_000)).message, /has 150002 names and values; the limit is 150000\./)
  const named = (length: number) => Object.fromEntries(Array.from({ length }, (_, index) => [`name ${index}`, index]))
  assert.match(refusal(bytes(JSON.stringify({ metadata: named(75_000) }))).message, /has 150002 names and values/)
  assert.ok(parseJsonBody(bytes(JSON.stringify(named(1_000)))))
  assert.match(refusal(bytes(JSON.stringify(named(1_001)))).message, /has 1001 parameters; the limit is 1000\./)
})

test('what is inside a string neither nests nor counts, wherever its quotes and backslashes are', () => {
  const text = fc.string({
    unit: fc.constantFrom('"', '\\', 'a', '[', ',', 'a long word without quotes'),
    maxLength: 300,
  })
  fc.assert(
    fc.property(text, (value) => {
      const nested = (depth: number) =>
        bytes(`{"a":${JSON.stringify(value)},"b":${'['.repeat(depth)}${']'.repeat(depth)}}`)
      assert.equal(parseJsonBody(nested(63)).a, value)
      assert.match(refusal(nested(64)).message, /deeper than 64/)
    }),
  )
  assert.ok(parseJsonBody(bytes(JSON.stringify({ a: '[,:'.repeat(200_000) }))))
})

test('a mistake behind megabytes of text is still only a refusal', () => {
  assert.equal(refusal(bytes(`{"a":"${'x'.repeat(8_000_000)}", "b": ?}`)).code, 'invalid_json')
})

test('a __proto__ member changes no prototype', () => {
  const body = parseJsonBody(bytes('{"__proto__":{"stream":true}}'))
  assert.equal(body.stream, undefined)
  assert.equal(Object.getPrototypeOf(body), Object.prototype)
})
