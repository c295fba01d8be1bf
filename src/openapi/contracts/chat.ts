import { z } from 'zod'
import { chatParameters } from '../../inference/chat-parameters.ts'
import { contract } from '../contract.ts'
import { count, instant, money, optionalMoney, uuid } from '../shapes.ts'
import { balance, deposit, withdrawal } from './funds.ts'
import { request } from './requests.ts'

export const chatBody = z.looseObject(chatParameters).meta({ id: 'ChatRequest' })

export const completion = z
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

export const model = z
  .looseObject({
    id: z.string(),
    object: z.literal('model'),
    context_length: count,
    max_output_tokens: count,
    max_tokens: count.meta({ description: 'Maximum with a short prompt' }),
    pricing: z.looseObject({
      prompt: z.string(),
      completion: z.string(),
      input_cache_read: z.string(),
      web_search: z.string().optional().meta({ description: 'Absent without a search provider' }),
    }),
    tags: z.array(z.string()).meta({ examples: [['reasoning', 'tool-use', 'web-search']] }),
    supported_parameters: z.array(z.string()),
    reasoning: z.looseObject({ default_effort: z.string(), supported_efforts: z.array(z.string()) }),
    per_request_limits: z
      .object({ prompt_tokens: count, completion_tokens: count })
      .meta({ description: 'Accepted maximum: input with the default max_tokens, output with a short prompt' }),
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
    isChat: true,
    body: chatBody,
    answer: completion,
    alsoAs: ['text/event-stream'],
  }),
  createQuote: contract({
    operation: 'createQuote',
    method: 'POST',
    path: '/v1/quote',
    summary: 'Quote the maximum cost of a completion, and whether it would be accepted now. Holds nothing',
    access: 'key',
    isChat: true,
    body: chatBody,
    answer: quote,
  }),
  listModels: contract({
    operation: 'listModels',
    method: 'GET',
    path: '/v1/models',
    summary: 'List models and prices',
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
    summary: 'Get one model and its prices',
    access: 'public',
    parameters: z.object({ id: z.string() }),
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
    isChat: true,
    body: z.looseObject({ key_id: uuid, ...chatParameters }),
    answer: completion,
    alsoAs: ['text/event-stream'],
  }),
  createPlaygroundQuote: contract({
    operation: 'createPlaygroundQuote',
    method: 'POST',
    path: '/api/quote',
    summary: 'Quote a playground completion',
    access: 'session',
    role: 'developer',
    isChat: true,
    body: z.looseObject({ key_id: uuid, ...chatParameters }),
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
    alsoAs: ['text/event-stream'],
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
