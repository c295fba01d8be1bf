import { z } from 'zod'
import { chatParameters, parametersWithoutEffect, reasoningEfforts } from '../../inference/chat-parameters.ts'
import { contract } from '../contract.ts'
import { anyError } from '../error-answers.ts'
import { count, instant, money, optionalMoney, uuid } from '../shapes.ts'
import { balance, deposit, withdrawal } from './funds.ts'
import { request } from './requests.ts'

const withoutEffect = z.unknown().optional().meta({ description: 'Accepted, without effect' })

export const chatBody = z
  .looseObject({
    ...chatParameters,
    ...(Object.fromEntries(parametersWithoutEffect.map((name) => [name, withoutEffect])) as {
      readonly [name in (typeof parametersWithoutEffect)[number]]: typeof withoutEffect
    }),
  })
  .meta({ id: 'ChatRequest', description: 'Unknown members are accepted and have no effect; null means absent' })

export const question = {
  model: 'gpt-5.6-terra',
  messages: [{ role: 'user', content: 'What is a penny?' }],
  max_tokens: 400,
}
const playgroundQuestion = { key_id: '0198f0c2-a1b2-7000-80d0-a1b2c3d4e5f6', ...question }

const exampleCompletion = {
  id: 'chatcmpl-0198f0c2a1b2700080d0a1b2c3d4e5f6',
  object: 'chat.completion',
  created: 1_794_821_400,
  model: 'gpt-5.6-terra',
  system_fingerprint: 'fp_penny',
  choices: [
    {
      index: 0,
      message: { role: 'assistant', content: 'A coin worth one hundredth of a pound or dollar.', refusal: null },
      logprobs: null,
      finish_reason: 'stop',
    },
  ],
  usage: {
    prompt_tokens: 18,
    completion_tokens: 171,
    total_tokens: 189,
    prompt_tokens_details: { cached_tokens: 0 },
    completion_tokens_details: { reasoning_tokens: 128 },
    cost: 0.000873,
    cost_details: {
      inference: 0.000873,
      search: 0,
      upstream_inference_prompt_cost: 0.000018,
      upstream_inference_completions_cost: 0.000855,
    },
  },
}

const playgroundBody = z.looseObject({ key_id: uuid.meta({ description: 'The key that pays' }) }).and(chatBody)

const finishReason = z.enum(['stop', 'length', 'tool_calls', 'content_filter'])

const annotation = z
  .object({
    type: z.literal('url_citation'),
    url_citation: z.object({
      url: z.string(),
      title: z.string(),
      start_index: count.meta({ description: 'In `content`, in UTF-16 units' }),
      end_index: count,
    }),
  })
  .meta({ id: 'Annotation', description: 'A page that the answer refers to' })

const tokenUsage = z
  .object({
    prompt_tokens: count,
    completion_tokens: count.meta({ description: 'Reasoning included' }),
    total_tokens: count,
    prompt_tokens_details: z.object({ cached_tokens: count }),
    completion_tokens_details: z.object({ reasoning_tokens: count }),
    cost: z.number().meta({ description: 'USDC, for display; the ledger row has the exact amount' }),
    cost_details: z.object({
      inference: z.number(),
      search: z.number(),
      upstream_inference_prompt_cost: z.number(),
      upstream_inference_completions_cost: z.number(),
    }),
  })
  .meta({ id: 'CompletionUsage' })

export const completion = z
  .object({
    id: z.string().meta({ description: '`chatcmpl-` and the digits of the request id' }),
    object: z.literal('chat.completion'),
    created: z.int().meta({ description: 'Seconds since 1970' }),
    model: z.string(),
    system_fingerprint: z.string(),
    choices: z.array(
      z.object({
        index: z.int(),
        message: z.object({
          role: z.literal('assistant'),
          content: z.string().nullable(),
          refusal: z.string().nullable(),
          reasoning_content: z.string().optional().meta({ description: 'The summary of the reasoning' }),
          reasoning: z.string().optional().meta({ description: 'The same as reasoning_content' }),
          tool_calls: z
            .array(
              z.object({
                id: z.string(),
                type: z.literal('function'),
                function: z.object({ name: z.string(), arguments: z.string() }),
              }),
            )
            .optional(),
          annotations: z.array(annotation).optional(),
        }),
        logprobs: z.null(),
        finish_reason: finishReason,
      }),
    ),
    usage: tokenUsage,
  })
  .meta({ id: 'Completion' })

const chunk = z
  .object({
    id: z.string(),
    object: z.literal('chat.completion.chunk'),
    created: z.int(),
    model: z.string(),
    system_fingerprint: z.string(),
    choices: z
      .array(
        z.object({
          index: z.int(),
          delta: z.object({
            role: z.literal('assistant').optional(),
            content: z.string().optional(),
            refusal: z.string().optional(),
            reasoning_content: z.string().optional(),
            reasoning: z.string().optional().meta({ description: 'The same as reasoning_content' }),
            tool_calls: z
              .array(
                z.object({
                  index: z.int(),
                  id: z.string().optional(),
                  type: z.literal('function').optional(),
                  function: z.object({ name: z.string().optional(), arguments: z.string() }),
                }),
              )
              .optional(),
            annotations: z.array(annotation).optional(),
          }),
          logprobs: z.null(),
          finish_reason: finishReason.nullable(),
        }),
      )
      .meta({ description: 'Empty in the chunk with the usage' }),
    usage: tokenUsage
      .optional()
      .meta({ description: 'In one chunk, before `[DONE]`, with stream_options.include_usage' }),
    tool_activity: z
      .object({
        type: z.enum(['web_search', 'web_fetch']),
        status: z.enum(['started', 'completed', 'failed']),
        call: count.meta({ description: 'Number of the call' }),
        query: z.string().optional(),
        url: z.string().optional(),
        results: count.optional(),
        reason: z.enum(['max_tokens_spent', 'budget_spent']).optional().meta({ description: 'Why it was not run' }),
      })
      .optional()
      .meta({ description: 'What our own tools do while the client waits' }),
    running_cost: z
      .object({ cost: z.number(), cost_atomic: z.string(), prompt_tokens: count, completion_tokens: count })
      .optional()
      .meta({ description: 'With stream_options.include_cost' }),
  })
  .meta({ id: 'CompletionChunk' })

/** What `stream: true` sends as `data:`. */
export const completionEvent = z.union([chunk, anyError]).meta({
  id: 'CompletionEvent',
  description:
    'The `data:` of one event. The last one of a complete stream is the text `[DONE]`. An error ends the stream without it',
})

const atomicHeader = z.string().regex(/^\d+$/)
const retryHeaders = z.object({
  'idempotency-key': z
    .string()
    .optional()
    .meta({ description: 'A repeated request with the same key and body gets the same answer for 24 hours' }),
  'x-stainless-retry-count': z
    .string()
    .optional()
    .meta({ description: 'Set by OpenAI’s SDKs: above 0, an equal request of the last 60 seconds is joined' }),
})

/** What chat completions by key, by wallet and from the dashboard have in common. */
export const completing = {
  isChat: true,
  examples: { body: question, answer: exampleCompletion },
  headers: retryHeaders,
  answer: completion,
  events: completionEvent,
  answerHeaders: z.object({
    'x-router-held-usdc': atomicHeader.meta({ description: 'The held amount in atomic USDC' }),
    'x-router-charged-usdc': atomicHeader.optional().meta({
      description: 'The charge in atomic USDC. Only buffered answers that finish within 45 seconds have it',
    }),
    'idempotent-replayed': z.literal('true').optional().meta({ description: 'The answer of an earlier attempt' }),
    'payment-response': z.string().optional().meta({ description: 'The payment over x402: JSON in base64' }),
  }),
  details:
    '`stream: true` selects server-sent events. A buffered answer that takes longer than 45 seconds sends its headers early: an error is then in the body of the 200',
} as const

const quote = z
  .object({
    object: z.literal('quote'),
    model: z.string(),
    max_tokens: count,
    input_tokens: count.meta({
      description:
        'Input tokens as this service counts them, tool definitions included. The charge uses what the model reports',
    }),
    input_tokens_max: count.meta({ description: 'Upper bound of the input tokens; `quote` is computed from it' }),
    ...money('quote', 'from_credit', 'authorized', 'available', 'search_max', 'search_per_call'),
    search_calls_max: count.meta({
      description:
        'Maximum number of searches. `search_max` is the most that searches, including the tokens of their results, can add to `quote`. All three are 0 when the model cannot search',
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

const perUnit = z.string().meta({ description: 'USDC per token or per call' })

export const model = z
  .object({
    id: z.string(),
    object: z.literal('model'),
    created: z.int(),
    owned_by: z.string(),
    name: z.string(),
    canonical_slug: z.string(),
    description: z.string(),
    type: z.literal('language'),
    tags: z.array(z.string()).meta({ examples: [['reasoning', 'tool-use', 'web-search']] }),
    context_length: count,
    context_window: count,
    max_model_len: count,
    max_output_tokens: count,
    max_tokens: count.meta({ description: 'Maximum with a short prompt' }),
    architecture: z.object({
      modality: z.string(),
      input_modalities: z.array(z.string()),
      output_modalities: z.array(z.string()),
      tokenizer: z.string(),
      instruct_type: z.null(),
    }),
    pricing: z.object({
      prompt: perUnit,
      completion: perUnit,
      input: perUnit,
      output: perUnit,
      request: perUnit,
      image: perUnit,
      web_search: perUnit.optional().meta({ description: 'Absent without a search provider' }),
      web_fetch: perUnit,
      internal_reasoning: perUnit,
      input_cache_read: perUnit,
    }),
    top_provider: z.object({ context_length: count, max_completion_tokens: count, is_moderated: z.boolean() }),
    per_request_limits: z
      .object({ prompt_tokens: count, completion_tokens: count })
      .meta({ description: 'Accepted maximum: input with the default max_tokens, output with a short prompt' }),
    supported_parameters: z.array(z.string()),
    supported_voices: z.null(),
    default_parameters: z.null(),
    reasoning: z.object({
      mandatory: z.boolean(),
      default_effort: z.enum(reasoningEfforts),
      supported_efforts: z.array(z.enum(reasoningEfforts)),
    }),
    links: z.object({ details: z.string() }),
  })
  .meta({ id: 'Model' })

export const modelList = z
  .object({
    object: z.literal('list'),
    data: z.array(model),
    links: z.object({ next: z.null() }),
    total_count: count,
  })
  .meta({ id: 'ModelList' })

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
    z.object({ type: z.literal('unidentified'), at: instant, code: z.string(), message: z.string() }).meta({
      description:
        'A completion from the IP address of this stream was refused because of an invalid API key. Sent by the node that refused it',
    }),
    z.object({ type: z.literal('ready'), at: instant, resumed: z.boolean() }).meta({
      description:
        'From here on, every change is sent. `resumed: true`: every change after `Last-Event-ID` was sent too; otherwise reload your data. Also sent after changes were skipped because there were too many',
    }),
  ])
  .meta({ id: 'StreamEvent' })

export const chatContracts = {
  createChatCompletion: contract({
    operation: 'createChatCompletion',
    method: 'POST',
    path: '/v1/chat/completions',
    summary: 'Create a chat completion, paid by the account of the key',
    access: 'key',
    ...completing,
    body: chatBody,
  }),
  createQuote: contract({
    operation: 'createQuote',
    method: 'POST',
    path: '/v1/quote',
    summary: 'Quote the maximum cost of a completion, and whether it would be accepted now. Holds nothing',
    access: 'key',
    isChat: true,
    body: chatBody,
    examples: { body: question },
    answer: quote,
  }),
  listModels: contract({
    operation: 'listModels',
    method: 'GET',
    path: '/v1/models',
    summary: 'List models and prices',
    access: 'public',
    answer: modelList,
  }),
  getModel: contract({
    operation: 'getModel',
    method: 'GET',
    path: '/v1/models/{id}',
    summary: 'Get one model and its prices',
    access: 'public',
    parameters: z.object({ id: z.string() }),
    // A key that may not use the model.
    refusedWith: [403],
    answer: model,
  }),
  createPlaygroundCompletion: contract({
    operation: 'createPlaygroundCompletion',
    method: 'POST',
    path: '/api/playground',
    summary:
      'Create a chat completion from the dashboard, with the limits of the chosen key. Responds like /v1/chat/completions',
    access: 'session',
    role: 'developer',
    ...completing,
    body: playgroundBody,
    examples: { body: playgroundQuestion, answer: exampleCompletion },
  }),
  createPlaygroundQuote: contract({
    operation: 'createPlaygroundQuote',
    method: 'POST',
    path: '/api/quote',
    summary: 'Quote a playground completion',
    access: 'session',
    role: 'developer',
    isChat: true,
    body: playgroundBody,
    examples: { body: playgroundQuestion },
    answer: quote,
  }),
  openStream: contract({
    operation: 'openStream',
    method: 'GET',
    path: '/api/stream',
    summary:
      'Stream the events of the account as server-sent events. `data` is a StreamEvent. A client that reconnects within two minutes with `Last-Event-ID` misses nothing',
    access: 'session',
    role: 'viewer',
    headers: z.object({ 'last-event-id': z.string().max(100).optional() }),
    answer: streamEvent,
    linesAs: 'text/event-stream',
  }),
  exportAccount: contract({
    operation: 'exportAccount',
    method: 'GET',
    path: '/api/export',
    summary: 'Export all stored data of the account as one JSON file',
    access: 'session',
    role: 'admin',
    isHeavy: true,
    answer: z.looseObject({ object: z.literal('export'), exported_at: instant, requests: z.array(request) }),
  }),
} as const
