import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { z } from 'zod'
import { chatBodies } from '../../test/support/chat-bodies.ts'
import { ServiceError } from '../errors.ts'
import { chatParameters, refusedParameters } from './chat-parameters.ts'
import { type ChatRequest, type ModelDirectory, parseChatRequest } from './chat-request.ts'
import { parseJsonBody } from './json-body.ts'

const outputTokens = new Map([
  ['gpt-5.6-terra', 64_000],
  ['tiny', 4_000],
])
const models: ModelDirectory = {
  defaultModel: 'gpt-5.6-terra',
  ids: [...outputTokens.keys()],
  maxOutputTokens: (model) => outputTokens.get(model),
}

const hello = [{ role: 'user', content: 'hello' }]
const weather = { type: 'function', function: { name: 'get_weather', parameters: { type: 'object' } } }
const call = (id: string) => ({ id, type: 'function', function: { name: 'get_weather', arguments: '{}' } })
const result = (id: string) => ({ role: 'tool', tool_call_id: id, content: 'rain' })

const parse = (body: unknown): ChatRequest => parseChatRequest(body, models)

/** The code and param of a refusal. */
function refusal(body: unknown): string {
  try {
    parse(body)
  } catch (error) {
    assert.ok(error instanceof ServiceError, `threw ${String(error)}`)
    assert.ok(error.message.length < 1_000, 'a message is of a bounded length')
    return `${error.code} ${error.param ?? '-'}`
  }
  return 'accepted'
}

test('the shortest request gets the documented defaults', () => {
  assert.deepEqual(parse({ messages: hello }), {
    model: 'gpt-5.6-terra',
    messages: hello,
    stream: false,
    includeUsage: false,
    includeCost: false,
    maxTokens: 8192,
    tools: [],
    toolChoice: 'auto',
    parallelToolCalls: undefined,
    responseFormat: { type: 'text' },
    reasoningEffort: 'low',
    temperature: undefined,
    promptCacheKey: undefined,
    webSearch: undefined,
    webFetch: undefined,
  })
})

test('null is absent, everywhere', () => {
  const nulls = Object.fromEntries([...Object.keys(chatParameters), ...refusedParameters].map((name) => [name, null]))
  assert.deepEqual(parse({ ...nulls, messages: hello }), parse({ messages: hello }))
  assert.equal(refusal({ messages: null }), 'missing_required_parameter messages')
})

test('parameters without effect and unknown names are accepted', () => {
  const ignored = {
    top_p: 'high',
    presence_penalty: 1,
    frequency_penalty: 1,
    seed: 7,
    logprobs: true,
    stop: ['.'],
    logit_bias: {},
    user: 'me',
    metadata: {},
    verbosity: 'low',
    service_tier: 'flex',
    store: true,
    whatever: [1],
    stream_options: 'ignored without stream',
    modalities: ['text'],
  }
  assert.deepEqual(parse({ ...ignored, messages: hello }), parse({ messages: hello }))
})

test('max_tokens and its alias are read, bounded by the model, and must agree', () => {
  const tokens = (body: object) => parse({ messages: hello, ...body }).maxTokens
  assert.equal(tokens({ model: 'tiny' }), 4_000, 'the default never passes the maximum of the model')
  assert.equal(tokens({ max_tokens: 1 }), 1)
  assert.equal(tokens({ max_completion_tokens: 64_000 }), 64_000)
  assert.equal(tokens({ max_tokens: 50, max_completion_tokens: 50 }), 50)
  assert.equal(
    refusal({ messages: hello, max_tokens: 50, max_completion_tokens: 51 }),
    'invalid_value max_completion_tokens',
  )
  for (const max_tokens of [0, -1, 1.5, 64_001, Number.POSITIVE_INFINITY, '10', true, {}]) {
    assert.equal(refusal({ messages: hello, max_tokens }), 'invalid_value max_tokens', String(max_tokens))
  }
  assert.throws(
    () => tokens({ max_tokens: 64_001 }),
    /`max_tokens` is 64001; .* 64000, the output limit of gpt-5\.6-terra/,
  )
})

test('an unknown model is refused before anything else, and the known ones are named', () => {
  assert.equal(refusal({ model: 'gpt-4', messages: 7, n: 5 }), 'model_not_found model')
  assert.equal(refusal({ model: '__proto__', messages: hello }), 'model_not_found model')
  assert.equal(refusal({ model: 7, messages: hello }), 'invalid_value model')
  assert.throws(() => parse({ model: 'x'.repeat(5_000) }), /Use one of `gpt-5\.6-terra`, `tiny`/)
})

test('of several mistakes the first in the documented order is reported', () => {
  const mistakes: Record<string, unknown> = {
    messages: [],
    stream: 'yes',
    max_tokens: 0,
    tools: 7,
    tool_choice: 7,
    response_format: 7,
    reasoning_effort: 7,
    reasoning: 7,
    n: 2,
    web_search: 7,
    web_fetch: 7,
    parallel_tool_calls: 7,
    temperature: 7,
    prompt_cache_key: 7,
    functions: [],
    function_call: 'auto',
    modalities: ['text', 'audio'],
  }
  const right: Record<string, unknown> = { messages: hello }
  const told: string[] = []
  for (const name of Object.keys(mistakes)) {
    told.push(refusal({ ...mistakes, ...right }).split(' ')[1]!)
    right[name] ??= undefined
  }
  assert.deepEqual(told, [
    'stream',
    'stream',
    'max_tokens',
    'tools',
    'tool_choice',
    'response_format',
    'reasoning_effort',
    'reasoning',
    'n',
    'web_search',
    'web_fetch',
    'parallel_tool_calls',
    'temperature',
    'prompt_cache_key',
    'functions',
    'function_call',
    'modalities[1]',
  ])
})

const inMessage = (message: unknown) => ({ messages: [...hello, message] })
const assistant = (...tool_calls: unknown[]) => ({ role: 'assistant', content: null, tool_calls })
const mistakes: Readonly<Record<string, readonly (readonly [expected: string, body: unknown])[]>> = {
  messages: [
    ['invalid_value -', []],
    ['missing_required_parameter messages', {}],
    ['invalid_value messages', { messages: [] }],
    ['invalid_value messages', { messages: 'hello' }],
    ['invalid_value messages', { messages: Array.from({ length: 10_001 }, () => hello[0]) }],
    ['invalid_value messages[1]', inMessage('hello')],
    ['missing_required_parameter messages[1].role', inMessage({ content: 'x' })],
    ['invalid_value messages[1].role', inMessage({ role: 'function', name: 'f', content: 'x' })],
    ['missing_required_parameter messages[1].content', inMessage({ role: 'user', content: null })],
    ['missing_required_parameter messages[1].content', inMessage({ role: 'assistant', content: null })],
    ['invalid_value messages[1].content', inMessage({ role: 'user', content: 7 })],
    ['invalid_value messages[1].content', inMessage({ role: 'user', content: [] })],
    ['invalid_value messages[1].content[0]', inMessage({ role: 'user', content: ['x'] })],
    ['missing_required_parameter messages[1].content[0].type', inMessage({ role: 'user', content: [{ text: 'x' }] })],
    [
      'unsupported_content messages[1].content[1].type',
      inMessage({
        role: 'user',
        content: [
          { type: 'text', text: 'x' },
          { type: 'image_url', image_url: { url: 'data:' } },
        ],
      }),
    ],
    [
      'unsupported_content messages[1].content[0].type',
      inMessage({ role: 'user', content: [{ type: 'input_audio' }] }),
    ],
    [
      'unsupported_content messages[1].content[0].type',
      inMessage({ role: 'user', content: [{ type: 'refusal', refusal: 'no' }] }),
    ],
    ['invalid_value messages[1].content[0].text', inMessage({ role: 'user', content: [{ type: 'text', text: 7 }] })],
    ['invalid_value messages[1].tool_calls', inMessage({ role: 'user', content: 'x', tool_calls: [call('a')] })],
    ['invalid_value messages[1].tool_calls', inMessage({ role: 'assistant', tool_calls: {} })],
    [
      'unsupported_parameter messages[1].tool_calls[0].type',
      inMessage(assistant({ id: 'a', type: 'custom', custom: {} })),
    ],
    ['missing_required_parameter messages[1].tool_calls[0].id', inMessage(assistant({ function: {} }))],
    [
      'missing_required_parameter messages[1].tool_calls[0].function.name',
      inMessage(assistant({ id: 'a', function: { arguments: '' } })),
    ],
    [
      'invalid_value messages[1].tool_calls[0].function.arguments',
      inMessage(assistant({ id: 'a', function: { name: 'f', arguments: {} } })),
    ],
    [
      'unsupported_parameter messages[1].function_call',
      inMessage({ role: 'assistant', content: null, function_call: { name: 'f' } }),
    ],
    ['missing_required_parameter messages[1].tool_call_id', inMessage({ role: 'tool', content: 'rain' })],
    ['invalid_value messages[1].tool_call_id', inMessage(result('nobody'))],
    [
      'invalid_value messages[1].tool_calls[1].id',
      { messages: [...hello, assistant(call('a'), call('b')), result('a')] },
    ],
    [
      'invalid_value messages[1].tool_calls[1].id',
      { messages: [...hello, assistant(call('a'), call('a')), result('a')] },
    ],
    [
      'invalid_value messages[2].tool_calls[0].id',
      { messages: [...hello, assistant(call('a')), assistant(call('a')), result('a'), result('a')] },
    ],
    ['invalid_value messages[2].tool_call_id', { messages: [...hello, assistant(call('')), result('a')] }],
    ['invalid_value messages[2].tool_call_id', { messages: [...hello, assistant(call('a')), result('')] }],
    ['invalid_value messages[1].tool_calls[1].id', { messages: [...hello, assistant(call(''), call('')), result('')] }],
    [
      'invalid_value messages[1].tool_calls[0].id',
      { messages: [...hello, assistant(call('')), assistant(call('')), result(''), result('')] },
    ],
    [
      'invalid_value messages[3].tool_call_id',
      { messages: [...hello, assistant(call('a')), result('a'), result('a')] },
    ],
  ],
  tools: [
    ['invalid_value tools', { messages: hello, tools: Array.from({ length: 129 }, () => weather) }],
    [
      'unsupported_parameter tools[1].type',
      { messages: hello, tools: [weather, { type: 'custom', custom: { name: 'x' } }] },
    ],
    ['missing_required_parameter tools[0].function', { messages: hello, tools: [{ type: 'function' }] }],
    [
      'invalid_value tools[0].function.name',
      { messages: hello, tools: [{ type: 'function', function: { name: 'ü' } }] },
    ],
    [
      'invalid_value tools[0].function.parameters',
      { messages: hello, tools: [{ type: 'function', function: { name: 'f', parameters: [] } }] },
    ],
    [
      'invalid_value tools[0].function.parameters',
      {
        messages: hello,
        tools: [{ type: 'function', function: { name: 'f', parameters: { minimum: Number.POSITIVE_INFINITY } } }],
      },
    ],
    [
      'invalid_value tools[0].function.strict',
      { messages: hello, tools: [{ type: 'function', function: { name: 'f', strict: 'yes' } }] },
    ],
    ['invalid_value tool_choice', { messages: hello, tools: [weather], tool_choice: 'any' }],
    ['invalid_value tool_choice', { messages: hello, tool_choice: 'required' }],
    ['invalid_value tool_choice', { messages: hello, tools: [], tool_choice: 'required', web_search: true }],
    [
      'invalid_value tool_choice.function.name',
      { messages: hello, tool_choice: { type: 'function', function: { name: 'get_weather' } } },
    ],
    [
      'invalid_value tool_choice.function.name',
      { messages: hello, tools: [weather], tool_choice: { type: 'function', function: { name: 'other' } } },
    ],
    [
      'unsupported_parameter tool_choice.type',
      { messages: hello, tools: [weather], tool_choice: { type: 'custom', custom: { name: 'x' } } },
    ],
    [
      'unsupported_parameter tools[0].function.name',
      { messages: hello, tools: [{ type: 'function', function: { name: 'web_search' } }], web_search: true },
    ],
    [
      'unsupported_parameter tools[0].function.name',
      { messages: hello, tools: [{ type: 'function', function: { name: 'web_fetch' } }], web_fetch: true },
    ],
    // The index is the one in the request, even if `allowed_tools` offers only some of its tools.
    [
      'unsupported_parameter tools[1].function.name',
      {
        messages: hello,
        tools: [weather, { type: 'function', function: { name: 'web_search' } }],
        web_search: true,
        tool_choice: {
          type: 'allowed_tools',
          allowed_tools: { mode: 'auto', tools: [{ type: 'function', function: { name: 'web_search' } }] },
        },
      },
    ],
    [
      'invalid_value tools[2].function.name',
      { messages: hello, tools: [weather, { ...weather, function: { name: 'f' } }, weather] },
    ],
  ],
  'other parameters': [
    ['invalid_value stream_options', { messages: hello, stream: true, stream_options: true }],
    [
      'invalid_value stream_options.include_usage',
      { messages: hello, stream: true, stream_options: { include_usage: 1 } },
    ],
    ['invalid_value response_format.type', { messages: hello, response_format: { type: 'xml' } }],
    [
      'missing_required_parameter response_format.json_schema',
      { messages: hello, response_format: { type: 'json_schema' } },
    ],
    [
      'missing_required_parameter response_format.json_schema.name',
      { messages: hello, response_format: { type: 'json_schema', json_schema: {} } },
    ],
    [
      'invalid_value response_format.json_schema.schema',
      { messages: hello, response_format: { type: 'json_schema', json_schema: { name: 'x', schema: 1 } } },
    ],
    ['invalid_value reasoning_effort', { messages: hello, reasoning_effort: 'max' }],
    ['invalid_value reasoning.effort', { messages: hello, reasoning: { effort: 'max' } }],
    ['invalid_value reasoning.effort', { messages: hello, reasoning_effort: 'low', reasoning: { effort: 'high' } }],
    ['invalid_value usage', { messages: hello, stream: true, usage: true }],
    ['invalid_value usage.include', { messages: hello, stream: true, usage: { include: 'yes' } }],
    ['invalid_value n', { messages: hello, n: 2 }],
    ['invalid_value n', { messages: hello, n: 0 }],
    ['invalid_value temperature', { messages: hello, temperature: 2.1 }],
    ['unsupported_parameter modalities[0]', { messages: hello, modalities: ['audio'] }],
  ],
}
for (const [what, cases] of Object.entries(mistakes)) {
  test(`a refusal names the exact place of the mistake, in ${what}`, () => {
    for (const [expected, body] of cases) assert.equal(refusal(body), expected, JSON.stringify(body).slice(0, 200))
  })
}

test('usage and reasoning effort are also read in OpenRouter’s spelling', () => {
  const asked = (body: object) => parse({ messages: hello, stream: true, ...body })
  assert.equal(asked({ usage: { include: true } }).includeUsage, true)
  assert.equal(asked({ usage: { include: false }, stream_options: { include_usage: true } }).includeUsage, true)
  assert.equal(asked({ usage: { include: false } }).includeUsage, false)
  assert.equal(asked({ usage: {} }).includeUsage, false)
  assert.equal(asked({ usage: { include: true }, stream: false }).includeUsage, false)
  assert.equal(asked({ reasoning: { effort: 'high', exclude: true } }).reasoningEffort, 'high')
  assert.equal(asked({ reasoning: { effort: null } }).reasoningEffort, 'low')
  assert.equal(asked({ reasoning: {} }).reasoningEffort, 'low')
  assert.equal(asked({ reasoning: { effort: 'xhigh' }, reasoning_effort: 'xhigh' }).reasoningEffort, 'xhigh')
})

test('tools and the choice among them are read', () => {
  const named = (name: string) => ({ type: 'function', function: { name } })
  const parsed = parse({ messages: hello, tools: [weather, named('other')], tool_choice: named('other') })
  assert.deepEqual(parsed.tools, [
    { name: 'get_weather', description: undefined, parameters: { type: 'object' }, strict: false },
    { name: 'other', description: undefined, parameters: undefined, strict: false },
  ])
  assert.deepEqual(parsed.toolChoice, { name: 'other' })
  const allowed = { type: 'allowed_tools', allowed_tools: { mode: 'required', tools: [named('other')] } }
  const narrowed = parse({ messages: hello, tools: [weather, named('other')], tool_choice: allowed })
  assert.deepEqual(
    narrowed.tools.map((tool) => tool.name),
    ['other'],
  )
  assert.equal(narrowed.toolChoice, 'required')
})

test('a tool of the customer may carry our names while ours are off', () => {
  const tools = [{ type: 'function', function: { name: 'web_search' } }]
  assert.equal(refusal({ messages: hello, tools }), 'accepted')
  assert.equal(refusal({ messages: hello, tools, web_search: false, web_fetch: true }), 'accepted')
  assert.equal(refusal({ messages: hello, tools, web_search: true, tool_choice: 'none' }), 'accepted')
})

test('a prompt cache key is cut to 128 characters, never through a character', () => {
  const key = (prompt_cache_key: string) => parse({ messages: hello, prompt_cache_key }).promptCacheKey
  assert.equal(key('k'.repeat(200)), 'k'.repeat(128))
  assert.equal(key(`${'k'.repeat(127)}😀!`), `${'k'.repeat(127)}😀`)
  assert.equal(key('😀'.repeat(200)), '😀'.repeat(128))
  assert.equal(key(`a${'😀'.repeat(200)}`), `a${'😀'.repeat(127)}`)
  assert.equal(key(''), undefined)
})

test('what was parsed does not change when the body does, and holds no broken text', () => {
  const parameters = { type: 'object', properties: { city: { enum: ['\ud800'] } } }
  const body = {
    messages: [{ role: 'user', content: 'half \udc00' }],
    tools: [{ type: 'function', function: { name: 'f', parameters } }],
  }
  const parsed = parse(body)
  parameters.properties.city.enum.push('later')
  body.messages[0]!.content = 'changed'
  assert.deepEqual(parsed.messages, [{ role: 'user', content: 'half \ufffd' }])
  assert.deepEqual(parsed.tools[0]?.parameters, { type: 'object', properties: { city: { enum: ['\ufffd'] } } })
})

test('a __proto__ key in a schema stays a key', () => {
  const body = parseJsonBody(
    Buffer.from(
      '{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"__proto__":{"a":1}}}}]}',
    ),
  )
  assert.equal(JSON.stringify(parse(body).tools[0]?.parameters), '{"__proto__":{"a":1}}')
})

const bodySchema = z.looseObject(chatParameters)

test('every described parameter is read, and what its description refuses is refused', () => {
  const values = [
    true,
    -1,
    0,
    1,
    1.5,
    3,
    1e9,
    '',
    'auto',
    'text',
    'low',
    'gpt-5.6-terra',
    [],
    [{}],
    [weather],
    hello,
    {},
  ]
  const nested = [false, 'high', 'loud', 7, {}].flatMap((value) =>
    ['include', 'include_usage', 'include_cost', 'effort', 'type', 'role'].map((name) => ({ [name]: value })),
  )
  for (const [name, schema] of Object.entries(chatParameters)) {
    const refusals = [...values, ...nested].map((value) => {
      const outcome = refusal({ messages: hello, stream: name !== 'stream', [name]: value })
      if (!schema.safeParse(value).success) assert.notEqual(outcome, 'accepted', `${name}: ${JSON.stringify(value)}`)
      return outcome
    })
    assert.ok(
      refusals.some((outcome) => outcome.split(' ')[1]?.split(/[.[]/)[0] === name),
      `${name} is described but not read`,
    )
  }
  for (const name of refusedParameters)
    assert.equal(refusal({ messages: hello, [name]: ['audio'] }).startsWith('unsupported_parameter'), true, name)
})

const clientCodes = new Set([
  'invalid_value',
  'missing_required_parameter',
  'unsupported_parameter',
  'unsupported_content',
  'model_not_found',
])

test('whatever is sent is either understood or refused as the client’s mistake', () => {
  let acceptedCount = 0
  fc.assert(
    fc.property(chatBodies(), (body) => {
      try {
        const parsed = parse(body)
        acceptedCount += 1
        // Without a stream, its options are not read.
        if (parsed.stream) assert.ok(bodySchema.safeParse(body).success, 'the reference refuses what is served')
        assert.ok(JSON.stringify(parsed).isWellFormed())
        assert.ok(parsed.maxTokens >= 1 && parsed.maxTokens <= 64_000)
      } catch (error) {
        assert.ok(error instanceof ServiceError && clientCodes.has(error.code), `threw ${String(error)}`)
      }
    }),
    { numRuns: 6_000 },
  )
  assert.ok(acceptedCount > 100, `only ${acceptedCount} bodies were accepted: the generator tests nothing`)
})
