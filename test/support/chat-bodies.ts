import fc from 'fast-check'

/** Almost valid bodies: every part is mostly right, sometimes of the wrong type, sometimes missing. */
export function chatBodies(): fc.Arbitrary<unknown> {
  const junk = fc.oneof(
    fc.jsonValue({ maxDepth: 2 }),
    fc.constantFrom(null, 0, -1, Number.POSITIVE_INFINITY, '', [], {}, '__proto__', '\ud800'),
  )
  const mostly = (right: fc.Arbitrary<unknown>) =>
    fc.oneof({ weight: 40, arbitrary: right }, { weight: 1, arbitrary: junk })
  const record = (members: Record<string, fc.Arbitrary<unknown>>, requiredKeys: string[] = []) => {
    const entries = Object.entries(members).map(([key, member]) => [key, mostly(member)] as const)
    const arbitraries: Record<string, fc.Arbitrary<unknown>> = Object.fromEntries(entries)
    return mostly(fc.record(arbitraries, { requiredKeys }))
  }
  const id = fc.constantFrom('a', 'b', '', 'c'.repeat(80))
  const name = fc.constantFrom('get_weather', 'get_weather', 'get_time', 'web_search', 'bad name')
  const part = record({ type: fc.constant('text'), text: fc.string() }, ['type', 'text'])
  const content = fc.oneof(fc.string(), fc.array(part, { minLength: 1, maxLength: 3 }))
  const toolCall = record({ id, function: record({ name, arguments: fc.json() }, ['name', 'arguments']) }, [
    'id',
    'function',
  ])
  const turns = fc.oneof(
    {
      weight: 6,
      arbitrary: record({ role: fc.constantFrom('system', 'user', 'assistant'), content }, ['role', 'content']),
    },
    {
      weight: 1,
      arbitrary: record({ role: fc.constant('assistant'), tool_calls: fc.array(toolCall, { maxLength: 2 }) }, ['role']),
    },
    { weight: 1, arbitrary: record({ role: fc.constant('tool'), content, tool_call_id: id }, ['role', 'content']) },
  )
  const schema = fc.dictionary(fc.string(), fc.jsonValue())
  const tool = record(
    { type: fc.constant('function'), function: record({ name, parameters: schema, strict: fc.boolean() }, ['name']) },
    ['type', 'function'],
  )
  const named = record({ type: fc.constantFrom('function', 'allowed_tools'), function: record({ name }, ['name']) })
  return record({
    model: fc.constantFrom('gpt-5.6-terra', 'tiny'),
    messages: fc.array(turns, { minLength: 1, maxLength: 4 }),
    stream: fc.boolean(),
    stream_options: record({ include_usage: fc.boolean() }),
    max_tokens: fc.integer({ min: 1, max: 4_000 }),
    tools: fc.array(tool, { maxLength: 2 }),
    tool_choice: fc.oneof(fc.constantFrom('auto', 'auto', 'none', 'required'), named),
    response_format: record({
      type: fc.constantFrom('text', 'json_object', 'json_schema'),
      json_schema: record({ name, schema }),
    }),
    reasoning_effort: fc.constantFrom('none', 'low', 'xhigh'),
    web_search: fc.boolean(),
    temperature: fc.double({ min: 0, max: 2, noNaN: true }),
    prompt_cache_key: fc.string(),
    modalities: fc.constantFrom(['text'], ['text'], ['text', 'audio']),
  })
}
