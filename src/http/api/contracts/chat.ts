import { z } from 'zod'
import { contract } from '../contract.ts'
import { count, instant, money, optionalMoney, uuid } from '../shapes.ts'
import { balance, deposit, withdrawal } from './funds.ts'
import { request } from './requests.ts'

// Described for readers of openapi.json. Chat requests themselves are parsed by `inference/chat-request.ts`, whose order of
// checks and messages are the product.
const chatMembers = {
  model: z
    .string()
    .nullish()
    .meta({ description: 'An id of the model list; another name is 404, never a fallback. Default gpt-5.6-terra' }),
  messages: z.array(z.looseObject({ role: z.enum(['system', 'developer', 'user', 'assistant', 'tool']) })).min(1),
  stream: z.boolean().nullish(),
  stream_options: z
    .looseObject({
      include_usage: z.boolean().optional(),
      include_cost: z
        .boolean()
        .optional()
        .meta({ description: 'Sends `running_cost` with the first output and at most once a second' }),
    })
    .nullish(),
  max_tokens: z.int().min(1).nullish().meta({ description: 'Decides what is quoted and held. Default 8192' }),
  max_completion_tokens: z.int().min(1).nullish().meta({ description: 'The same as max_tokens' }),
  n: z.literal(1).nullish(),
  temperature: z.number().min(0).max(2).nullish(),
  tools: z.array(z.looseObject({ type: z.literal('function') })).nullish(),
  tool_choice: z
    .union([z.enum(['auto', 'none', 'required']), z.looseObject({ type: z.literal('function') })])
    .nullish(),
  parallel_tool_calls: z.boolean().nullish(),
  response_format: z.looseObject({ type: z.enum(['text', 'json_object', 'json_schema']) }).nullish(),
  reasoning_effort: z
    .enum(['none', 'minimal', 'low', 'medium', 'high', 'xhigh'])
    .nullish()
    .meta({ description: 'Default low' }),
  reasoning: z
    .looseObject({ effort: z.string().nullish() })
    .nullish()
    .meta({ description: 'OpenRouter’s spelling of reasoning_effort; other members have no effect' }),
  usage: z
    .looseObject({ include: z.boolean().nullish() })
    .nullish()
    .meta({ description: 'OpenRouter’s spelling of stream_options.include_usage' }),
  prompt_cache_key: z
    .string()
    .nullish()
    .meta({ description: 'Cut to 128 characters; accounts that choose the same key do not share a cache' }),
  web_search: z
    .boolean()
    .nullish()
    .meta({ description: 'Default true without own tools, else false. Bounds the cost to the quote when false' }),
  web_fetch: z.boolean().nullish().meta({ description: 'Default true without own tools, else false' }),
}
const chatBody = z.looseObject(chatMembers).meta({ id: 'ChatRequest' })

const completion = z
  .looseObject({
    id: z.string(),
    object: z.literal('chat.completion'),
    created: z.int(),
    model: z.string(),
    choices: z.array(z.looseObject({ index: z.int(), finish_reason: z.string() })),
    usage: z.looseObject({
      prompt_tokens: count,
      completion_tokens: count,
      total_tokens: count,
      cost: z.number(),
      cost_details: z.looseObject({
        inference: z.number(),
        search: z.number(),
        upstream_inference_prompt_cost: z.number(),
        upstream_inference_completions_cost: z.number(),
      }),
    }),
  })
  .meta({ id: 'Completion' })

const quote = z
  .object({
    object: z.literal('quote'),
    model: z.string(),
    max_tokens: count,
    input_tokens_max: count,
    ...money('quote', 'from_credit', 'authorized', 'available', 'search_max', 'search_per_call'),
    search_calls_max: count.meta({
      description:
        'Searches that the model may make. `search_max` is the most that they, and the tokens of the rounds that read their results, may add to `quote`; all three are 0 when it cannot search',
    }),
    ...optionalMoney('typical'),
    admitted: z.boolean(),
    refusal: z.object({ code: z.string(), message: z.string() }).nullable(),
    affordable_max_tokens: count,
    lines: z.array(
      z.object({ item: z.enum(['input_tokens', 'output_tokens']), units: count, per_million: z.string() }),
    ),
  })
  .meta({ id: 'Quote' })

const model = z
  .looseObject({
    id: z.string(),
    object: z.literal('model'),
    context_length: count,
    max_output_tokens: count,
    max_tokens: count.meta({ description: 'The most that is admitted with a short prompt' }),
    pricing: z.looseObject({
      prompt: z.string(),
      completion: z.string(),
      web_search: z.string().optional().meta({ description: 'Absent where no search is configured' }),
    }),
    per_request_limits: z
      .object({ prompt_tokens: count, completion_tokens: count })
      .meta({ description: 'What is admitted: of input with the default max_tokens, of output with a short prompt' }),
  })
  .meta({ id: 'Model' })

/** One server-sent event: its name in `event:`, this in `data:`. */
const streamEvent = z
  .discriminatedUnion('type', [
    z.object({ type: z.literal('balance'), balance }),
    z.object({
      type: z.literal('request'),
      change: z.enum(['started', 'ended', 'refused']),
      request,
    }),
    z.object({ type: z.literal('deposit'), deposit }),
    z.object({ type: z.literal('withdrawal'), withdrawal }),
    z.object({ type: z.literal('ready'), at: instant }),
  ])
  .meta({ id: 'StreamEvent' })

export const chatContracts = {
  createChatCompletion: contract({
    operation: 'createChatCompletion',
    method: 'POST',
    path: '/v1/chat/completions',
    summary: 'A chat completion, paid for by the key’s account',
    access: 'key',
    isChat: true,
    body: chatBody,
    answer: completion,
    alsoAs: ['text/event-stream'],
  }),
  createQuote: contract({
    operation: 'createQuote',
    method: 'POST',
    path: '/v1/quote',
    summary: 'The most a completion would cost, and whether it would be admitted now. Holds nothing',
    access: 'key',
    isChat: true,
    body: chatBody,
    answer: quote,
  }),
  listModels: contract({
    operation: 'listModels',
    method: 'GET',
    path: '/v1/models',
    summary: 'The models and their prices',
    access: 'public',
    answer: z.object({
      object: z.literal('list'),
      data: z.array(model),
      links: z.object({ next: z.null() }),
      total_count: count,
    }),
  }),
  getModel: contract({
    operation: 'getModel',
    method: 'GET',
    path: '/v1/models/{id}',
    summary: 'One model and its prices',
    access: 'public',
    parameters: z.object({ id: z.string() }),
    answer: model,
  }),
  createPlaygroundCompletion: contract({
    operation: 'createPlaygroundCompletion',
    method: 'POST',
    path: '/api/playground',
    summary:
      'A chat completion from the dashboard, under the limits of the chosen key; answers like /v1/chat/completions',
    access: 'session',
    isChat: true,
    body: z.looseObject({ key_id: uuid, ...chatMembers }),
    answer: completion,
    alsoAs: ['text/event-stream'],
  }),
  createPlaygroundQuote: contract({
    operation: 'createPlaygroundQuote',
    method: 'POST',
    path: '/api/quote',
    summary: 'The same quote for the playground',
    access: 'session',
    isChat: true,
    body: z.looseObject({ key_id: uuid, ...chatMembers }),
    answer: quote,
  }),
  openStream: contract({
    operation: 'openStream',
    method: 'GET',
    path: '/api/stream',
    summary: 'What happens in the account, as server-sent events (EventSource): `data` is a StreamEvent',
    access: 'session',
    answer: streamEvent,
    alsoAs: ['text/event-stream'],
  }),
  exportAccount: contract({
    operation: 'exportAccount',
    method: 'GET',
    path: '/api/export',
    summary: 'Everything that is kept about the account, as one JSON file',
    access: 'session',
    isHeavy: true,
    answer: z.looseObject({ object: z.literal('export'), exported_at: instant, requests: z.array(request) }),
  }),
} as const
