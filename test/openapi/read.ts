import type { components } from './generated/openapi-typescript.ts'

// Reads every member of the answers of /v1. Without a cast: a member that openapi.json does not describe does not compile, and one
// that is described and not read here does not compile either.

type Schemas = components['schemas']
export type ChatRequest = Schemas['ChatRequest']

/** Only an object without further members fits. */
type Nothing = { readonly [name: string]: never }
const all = (_rest: Nothing): void => {}

/** What a client keeps of an answer. */
export type Read = { readonly text: string; readonly calls: readonly string[]; readonly totalTokens: number }

/** Every parameter: `Required` has none that may be left out. */
export const everyParameter: Required<ChatRequest> = {
  model: 'gpt-5.6-terra',
  messages: [
    { role: 'system', content: 'Be brief.' },
    { role: 'developer', content: [{ type: 'text', text: 'Use whole sentences.' }] },
    { role: 'user', content: [{ type: 'text', text: 'What is the weather in Kiel?' }] },
    {
      role: 'assistant',
      content: [
        { type: 'text', text: 'I will look.' },
        { type: 'refusal', refusal: 'no' },
      ],
      refusal: null,
      tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Kiel"}' } }],
      reasoning: 'The tool knows.',
      reasoning_content: 'The tool knows.',
    },
    { role: 'tool', tool_call_id: 'call_1', content: [{ type: 'text', text: '12 degrees' }] },
    { role: 'user', content: 'Answer as JSON.' },
  ],
  stream: false,
  stream_options: null,
  max_tokens: 300,
  max_completion_tokens: 300,
  n: 1,
  temperature: 0.5,
  tools: [
    {
      type: 'function',
      function: {
        name: 'get_weather',
        description: 'The weather of a city',
        parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
        strict: false,
      },
    },
  ],
  tool_choice: {
    type: 'allowed_tools',
    allowed_tools: { mode: 'auto', tools: [{ type: 'function', function: { name: 'get_weather' } }] },
  },
  parallel_tool_calls: true,
  response_format: {
    type: 'json_schema',
    json_schema: {
      name: 'weather',
      description: 'The weather',
      schema: { type: 'object', properties: { degrees: { type: 'number' } }, required: ['degrees'] },
      strict: false,
    },
  },
  reasoning_effort: 'low',
  reasoning: { effort: 'low' },
  usage: { include: true },
  prompt_cache_key: 'weather',
  web_search: false,
  web_fetch: false,
  top_p: 1,
  presence_penalty: 0,
  frequency_penalty: 0,
  seed: 7,
  logprobs: false,
  stop: null,
  logit_bias: {},
  user: 'customer-1',
}

/** The other forms of parameters that have several. */
export const otherForms: readonly ChatRequest[] = [
  { messages: [{ role: 'user', content: 'Hello' }], tool_choice: 'none', response_format: { type: 'json_object' } },
  {
    messages: [{ role: 'user', content: 'Hello' }],
    tools: [{ type: 'function', function: { name: 'greet' } }],
    tool_choice: { type: 'function', function: { name: 'greet' } },
    response_format: { type: 'text' },
    stream: true,
    stream_options: { include_usage: true, include_cost: true },
  },
]

export function readCompletion(completion: Schemas['Completion']): Read {
  const { id, object, created, model, system_fingerprint, choices, usage, ...rest } = completion
  all(rest)
  const head: [string, 'chat.completion', number, string, string] = [id, object, created, model, system_fingerprint]
  const read = choices.map(({ index, message, logprobs, finish_reason, ...restOfChoice }) => {
    all(restOfChoice)
    const { role, content, refusal, reasoning_content, reasoning, tool_calls, annotations, ...restOfMessage } = message
    all(restOfMessage)
    const said: [number, 'assistant', null, string] = [index, role, logprobs, finish_reason]
    const calls = (tool_calls ?? []).map(
      ({ id, type, function: { name, arguments: given, ...restOfFunction }, ...restOfCall }) => {
        all(restOfFunction)
        all(restOfCall)
        return `${id} ${type} ${name} ${given}`
      },
    )
    const cited = (annotations ?? []).map(readAnnotation)
    return { text: [content, refusal, reasoning_content, reasoning, ...cited, ...said].join(' '), calls }
  })
  return {
    text: [...head, ...read.map(({ text }) => text)].join(' '),
    calls: read.flatMap(({ calls }) => calls),
    totalTokens: readUsage(usage),
  }
}

/** @throws the message of an error that ends the stream */
export function readEvent(event: Schemas['CompletionEvent']): Read {
  if ('error' in event) throw new Error(readError(event))
  const { id, object, created, model, system_fingerprint, choices, usage, tool_activity, running_cost, ...rest } = event
  all(rest)
  const head: [string, 'chat.completion.chunk', number, string, string] = [
    id,
    object,
    created,
    model,
    system_fingerprint,
  ]
  const read = choices.map(({ index, delta, logprobs, finish_reason, ...restOfChoice }) => {
    all(restOfChoice)
    const { role, content, refusal, reasoning_content, reasoning, tool_calls, annotations, ...restOfDelta } = delta
    all(restOfDelta)
    const said = [index, role, logprobs, finish_reason, content, refusal, reasoning_content, reasoning]
    const calls = (tool_calls ?? []).map(
      ({ index, id, type, function: { name, arguments: given, ...restOfFunction }, ...restOfCall }) => {
        all(restOfFunction)
        all(restOfCall)
        return `${index} ${id} ${type} ${name} ${given}`
      },
    )
    return { text: [...said, ...(annotations ?? []).map(readAnnotation)].join(' '), calls }
  })
  return {
    text: [...head, ...read.map(({ text }) => text), readActivity(tool_activity), readCost(running_cost)].join(' '),
    calls: read.flatMap(({ calls }) => calls),
    totalTokens: usage === undefined ? 0 : readUsage(usage),
  }
}

function readActivity(activity: Schemas['CompletionChunk']['tool_activity']): string {
  if (activity === undefined) return ''
  const { type, status, call, query, url, results, reason, ...rest } = activity
  all(rest)
  return [type, status, call, query, url, results, reason].join(' ')
}

function readCost(running: Schemas['CompletionChunk']['running_cost']): string {
  if (running === undefined) return ''
  const { cost, cost_atomic, prompt_tokens, completion_tokens, ...rest } = running
  all(rest)
  return [cost.toFixed(6), BigInt(cost_atomic), prompt_tokens + completion_tokens].join(' ')
}

function readAnnotation({ type, url_citation, ...rest }: Schemas['Annotation']): string {
  all(rest)
  const { url, title, start_index, end_index, ...restOfCitation } = url_citation
  all(restOfCitation)
  return `${type} ${new URL(url).host} ${title} ${end_index - start_index}`
}

function readUsage(usage: Schemas['CompletionUsage']): number {
  const { prompt_tokens, completion_tokens, total_tokens, cost, ...details } = usage
  const { prompt_tokens_details, completion_tokens_details, cost_details, ...rest } = details
  all(rest)
  const { cached_tokens, ...restOfPrompt } = prompt_tokens_details
  const { reasoning_tokens, ...restOfCompletion } = completion_tokens_details
  const { inference, search, upstream_inference_prompt_cost, upstream_inference_completions_cost, ...restOfCost } =
    cost_details
  all({ ...restOfPrompt, ...restOfCompletion, ...restOfCost })
  const costs: number[] = [cost, inference, search, upstream_inference_prompt_cost, upstream_inference_completions_cost]
  const tokens: number[] = [prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, ...costs]
  return tokens.every(Number.isFinite) ? total_tokens : Number.NaN
}

/** Of any status: what is due with a 402, 403 or 429 as well. */
export function readError(
  body: Schemas['Error' | 'PaymentRequiredError' | 'ForbiddenError' | 'RateLimitError' | 'ConflictError' | 'GoneError'],
): string {
  const { message, type, param, code, request_id, doc_url } = body.error
  return [code, type, param, message, request_id, new URL(doc_url, 'http://localhost').pathname].join(' ')
}

export function readPaymentRequired({ error, ...rest }: Schemas['PaymentRequiredError']): bigint {
  all(rest)
  const { message, type, param, code, request_id, doc_url, ...extras } = error
  readError({ error: { message, type, param, code, request_id, doc_url } })
  const { required_atomic, required, available_atomic, available, held_atomic, held, ...more } = extras
  const { affordable_max_tokens, deposit_address, quote_atomic, quote, credit_atomic, credit, ...ofWallets } = more
  const { amount_atomic, amount, reason, paid_atomic, paid, payment, ...left } = ofWallets
  all(left)
  const amounts = [
    required_atomic,
    available_atomic,
    held_atomic,
    quote_atomic,
    credit_atomic,
    amount_atomic,
    paid_atomic,
  ]
  const decimals = [required, available, held, quote, credit, amount, paid]
  const texts: (string | null | undefined)[] = [...decimals, deposit_address, reason, payment]
  const tokens: number | undefined = affordable_max_tokens
  return amounts.reduce((sum: bigint, each) => sum + BigInt(each ?? 0), BigInt(tokens ?? texts.length))
}

export function readModel(model: Schemas['Model']): string {
  const { id, object, created, owned_by, name, canonical_slug, description, type, tags, ...rest } = model
  const { context_length, context_window, max_model_len, max_output_tokens, max_tokens, architecture, ...more } = rest
  const { pricing, top_provider, per_request_limits, supported_parameters, supported_voices, ...others } = more
  const { default_parameters, reasoning, links, ...left } = others
  all(left)
  const lengths: number[] = [context_length, context_window, max_model_len, max_output_tokens, max_tokens, created]
  const prices: (string | undefined)[] = Object.values(pricing)
  const limits: number[] = [per_request_limits.prompt_tokens, per_request_limits.completion_tokens]
  const texts = [id, object, owned_by, name, canonical_slug, description, type, architecture.tokenizer, links.details]
  const none: null[] = [supported_voices, default_parameters, architecture.instruct_type]
  const lists: string[] = [
    ...tags,
    ...supported_parameters,
    ...reasoning.supported_efforts,
    ...architecture.input_modalities,
  ]
  const { max_completion_tokens, is_moderated } = top_provider
  return [...lengths, ...prices, ...limits, ...texts, ...none, ...lists, max_completion_tokens, is_moderated].join(' ')
}

export function readReceipt({
  id,
  object,
  version,
  entry,
  domain,
  hash,
  payment,
  ...rest
}: Schemas['Receipt']): string {
  all(rest)
  const amounts = [entry.quote_atomic, entry.from_credit_atomic, entry.amount_atomic].map(BigInt)
  const paid = payment === undefined ? [] : [payment.payer, payment.value_atomic, payment.signature, ...payment.proof]
  const batch = payment?.batch === undefined ? [] : [payment.batch.tx_hash, payment.batch.root, ...payment.batch.proof]
  return [id, object, version, entry.kind, ...amounts, domain.chain_id, hash, ...paid, ...batch].join(' ')
}
