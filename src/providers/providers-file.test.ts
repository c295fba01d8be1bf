import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { InvalidProvidersFileError, readProvidersFile } from './providers-file.ts'

const folder = mkdtempSync(join(tmpdir(), 'penny-providers-'))
after(() => rmSync(folder, { recursive: true }))

const defaults = {
  timeouts: { connectMs: 1, firstByteMs: 2, idleMs: 3, totalMs: 4 },
  concurrencyMax: 100,
}
const local = { protocol: 'chat-completions', base_url: 'http://localhost:8000/v1/', api_key: null }
const hosted = { protocol: 'responses', base_url: 'https://api.example.com/v1', api_key: 'sk-secret' }
const model = { id: 'm', input_per_million: '1', output_per_million: '5', max_output_tokens: 1000 }

function read(content: unknown) {
  const file = join(folder, 'providers.json')
  writeFileSync(file, typeof content === 'string' ? content : JSON.stringify(content))
  return readProvidersFile(file, defaults)
}

function mistakesIn(content: unknown): string {
  try {
    read(content)
  } catch (error) {
    assert.ok(error instanceof InvalidProvidersFileError)
    return error.message
  }
  return ''
}

test('a whole file is read, with defaults for what it leaves out', () => {
  writeFileSync(join(folder, 'key'), 'sk-file\n')
  const { providers, models } = read({
    providers: {
      local: { ...local, headers: { 'X-Team': 'a' }, concurrency: 8, first_byte_ms: 20_000, slow_ms: 5_000 },
      hosted: { protocol: 'responses', base_url: 'https://api.example.com/v1', api_key_file: 'key' },
      discounting: local,
    },
    models: [
      {
        ...model,
        upstreams: [
          { provider: 'local', model: 'llama', weight: 3, input_cost_per_million: '0.2', output_cost_per_million: 1 },
          { provider: 'hosted', priority: 1 },
          {
            provider: 'discounting',
            input_cost_per_million: '0.2',
            cached_input_cost_per_million: '0.05',
            output_cost_per_million: 1,
          },
        ],
      },
    ],
  })
  assert.deepEqual(providers[0], {
    id: 'local',
    protocol: 'chat-completions',
    baseUrl: 'http://localhost:8000/v1',
    apiKey: undefined,
    headers: { 'x-team': 'a' },
    timeouts: { connectMs: 1, firstByteMs: 20_000, idleMs: 3, totalMs: 4 },
    slowMs: 5_000,
    concurrencyMax: 8,
    concurrencyPerAccountMin: 4,
  })
  assert.equal(providers[1]!.apiKey, 'sk-file')
  assert.deepEqual(models, [
    {
      entry: model,
      routes: [
        {
          provider: 'local',
          model: 'llama',
          priority: 0,
          weight: 3,
          rates: { inputPerMillion: 200_000n, cachedInputPerMillion: 200_000n, outputPerMillion: 1_000_000n },
        },
        { provider: 'hosted', model: 'm', priority: 1, weight: 1, rates: undefined },
        {
          provider: 'discounting',
          model: 'm',
          priority: 0,
          weight: 1,
          rates: { inputPerMillion: 200_000n, cachedInputPerMillion: 50_000n, outputPerMillion: 1_000_000n },
        },
      ],
    },
  ])
})

test('each mistake is one line that names its place', () => {
  const upstreams = [{ provider: 'local' }]
  const withCosts = (costs: object) => ({
    providers: { local },
    models: [{ ...model, upstreams: [{ provider: 'local', ...costs }] }],
  })
  const cases: readonly [content: unknown, line: RegExp][] = [
    [{ providers: { a: { ...local, protocol: 'grpc' } } }, /providers\.a\.protocol must be one of .*got "grpc"/],
    [{ providers: { a: { ...local, api_key: undefined } } }, /providers\.a: the key is missing/],
    [{ providers: { a: { ...hosted, api_key_file: 'key' } } }, /providers\.a: api_key and api_key_file/],
    [{ providers: { a: { ...local, api_key: undefined, api_key_file: 'absent' } } }, /a\.api_key_file cannot be read/],
    [{ providers: { a: { ...local, base_url: 'ftp://x' } } }, /providers\.a\.base_url must be an http/],
    [{ providers: { a: { ...local, base_url: 'https://sk@x' } } }, /providers\.a\.base_url .*without a key/],
    [{ providers: { a: { ...local, concurrency: 0 } } }, /providers\.a\.concurrency must be a whole number from 1/],
    [{ providers: { a: { ...local, timeout: 5 } } }, /providers\.a: unknown member "timeout"/],
    [{ providers: { a: { ...local, headers: { a: 1 } } } }, /providers\.a\.headers must be/],
    [{ providers: { a: { ...local, headers: { Host: 'x' } } } }, /providers\.a\.headers must not have "Host"/],
    [{ providers: { a: { ...hosted, api_key: 'sk-a\nb' } } }, /providers\.a\.api_key must be one line of ASCII/],
    [
      { providers: { a: { ...local, api_key: undefined, api_key_file: '.' } } },
      /a\.api_key_file cannot be read: .*not a file/,
    ],
    [{ providers: { 'a b': local } }, /providers\.a b: the name must be/],
    [{ providers: {} }, /"providers" must be an object with at least one/],
    [[], /it must be a JSON object/],
    [{ providers: { local }, models: [] }, /"models" must be an array with at least one/],
    [{ providers: { local }, models: [model] }, /models\[0\] \(m\) has no upstream/],
    [{ providers: { local }, models: [{ ...model, upstreams: [] }] }, /models\[0\] \(m\) has no upstream/],
    [
      { providers: { local }, models: [{ ...model, upstreams: [{ provider: 'lokal' }] }] },
      /models\[0\] \(m\)\.upstreams\[0\]\.provider must be one of local, got "lokal"/,
    ],
    [{ providers: { local }, models: [{ ...model, upstreams: [...upstreams, ...upstreams] }] }, /"local" twice/],
    [
      { providers: { local }, models: [{ ...model, upstreams: [{ provider: 'local', weight: -1 }] }] },
      /upstreams\[0\]\.weight must be a whole number from 1/,
    ],
    [
      { providers: { local }, models: [{ ...model, upstreams: [{ provider: 'local', input_cost_per_million: '1' }] }] },
      /upstreams\[0\] must have both costs/,
    ],
    [withCosts({ cached_input_cost_per_million: '1' }), /upstreams\[0\] must have both costs/],
    [
      withCosts({ input_cost_per_million: 1, cached_input_cost_per_million: 'half', output_cost_per_million: 1 }),
      /upstreams\[0\]\.cached_input_cost_per_million must be USDC per million tokens, .*got "half"/,
    ],
    [
      withCosts({ input_cost_per_million: 1, cached_input_cost_per_million: 2, output_cost_per_million: 1 }),
      /upstreams\[0\]\.cached_input_cost_per_million must not be higher than input_cost_per_million/,
    ],
  ]
  for (const [content, line] of cases) {
    const message = mistakesIn(content)
    assert.match(message, line)
    assert.ok(!message.includes('\n'), `one mistake, one line: ${message}`)
  }
})

test('all mistakes are reported together, a line each', () => {
  const message = mistakesIn({ providers: { a: { ...local, protocol: 'x' }, b: { ...local, concurrency: 'many' } } })
  assert.equal(message.split('\n').length, 3)
})

test('a file that is absent, not JSON or names something twice is one line with the line number, and quotes no key', () => {
  assert.throws(() => readProvidersFile(join(folder, 'absent.json'), defaults), /PROVIDERS_FILE cannot be used: ENOENT/)
  assert.throws(() => readProvidersFile(folder, defaults), /PROVIDERS_FILE cannot be used: .* is not a file\.$/)
  assert.match(mistakesIn(' \n'), /the file is empty\.$/)
  assert.match(mistakesIn(' '.repeat(1024 * 1024 + 1)), /has 1048577 bytes; the limit is 1048576\.$/)
  assert.match(mistakesIn('\uFEFF[]'), /it must be a JSON object/)
  const broken = '{\n  "providers": {\n    "a": { "api_key": "sk-secret" x }\n  }\n}'
  assert.match(mistakesIn(broken), /not valid JSON.* in line 3\.$/)
  assert.match(mistakesIn('{\n "providers": {\n  "a": sk-secret\n }\n}'), /not valid JSON.* in line 3\.$/)
  assert.match(mistakesIn(`{\n "providers": {\n  "a": ${JSON.stringify(local)}\n`), /not valid JSON/)
  for (const text of [broken, '{"providers": sk-secret}']) assert.doesNotMatch(mistakesIn(text), /secret/)
  assert.match(
    mistakesIn('{\n"providers": {\n"a": {},\n"a": {}\n}\n}'),
    /"a" is given twice in one object, again in line 4/,
  )
})
