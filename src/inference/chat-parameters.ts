import { z } from 'zod'

// The members of a chat request's body. `chat-request.ts` can read no other member, and openapi.json describes these. A test
// compares what the schemas accept with what the parser accepts. The parser does not run the schemas: it checks in a documented
// order, with its own messages.

export const reasoningEfforts = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh'] as const
export type ReasoningEffort = (typeof reasoningEfforts)[number]

export const messageRoles = ['system', 'developer', 'user', 'assistant', 'tool'] as const
export const toolChoiceWords = ['auto', 'none', 'required'] as const
export const responseFormatTypes = ['text', 'json_object', 'json_schema'] as const
export const temperatureMax = 2
/** Applies when a request has no `max_tokens`. */
export const maxTokensDefault = 8192
export const promptCacheKeyCharactersMax = 128

export const chatParameters = {
  model: z.string().nullish().meta({
    description:
      'A model id from the model list. An unknown name is refused with 404; there is no fallback. Default gpt-5.6-terra',
  }),
  messages: z.array(z.looseObject({ role: z.enum(messageRoles) })).min(1),
  stream: z.boolean().nullish(),
  stream_options: z
    .looseObject({
      include_usage: z.boolean().nullish(),
      include_cost: z
        .boolean()
        .nullish()
        .meta({ description: 'Sends `running_cost` with the first output and at most once a second' }),
    })
    .nullish(),
  max_tokens: z
    .int()
    .min(1)
    .nullish()
    .meta({ description: `Decides what is quoted and held. Default ${maxTokensDefault}` }),
  max_completion_tokens: z.int().min(1).nullish().meta({ description: 'The same as max_tokens' }),
  n: z.literal(1).nullish(),
  temperature: z.number().min(0).max(temperatureMax).nullish(),
  tools: z.array(z.looseObject({ type: z.literal('function') })).nullish(),
  tool_choice: z
    .union([z.enum(toolChoiceWords), z.looseObject({ type: z.enum(['function', 'allowed_tools']) })])
    .nullish(),
  parallel_tool_calls: z.boolean().nullish(),
  response_format: z.looseObject({ type: z.enum(responseFormatTypes) }).nullish(),
  reasoning_effort: z.enum(reasoningEfforts).nullish().meta({ description: 'Default low' }),
  reasoning: z
    .looseObject({ effort: z.enum(reasoningEfforts).nullish() })
    .nullish()
    .meta({ description: 'OpenRouter’s spelling of reasoning_effort; other members have no effect' }),
  usage: z
    .looseObject({ include: z.boolean().nullish() })
    .nullish()
    .meta({ description: 'OpenRouter’s spelling of stream_options.include_usage' }),
  prompt_cache_key: z
    .string()
    .nullish()
    .meta({
      description: `Cut to ${promptCacheKeyCharactersMax} characters; accounts that choose the same key do not share a cache`,
    }),
  web_search: z
    .boolean()
    .nullish()
    .meta({ description: 'Default true without own tools, else false. Bounds the cost to the quote when false' }),
  web_fetch: z.boolean().nullish().meta({ description: 'Default true without own tools, else false' }),
}

/** Members that are refused: ignoring them would change the answer. */
export const refusedParameters = ['functions', 'function_call', 'modalities'] as const

export type ChatParameter = keyof typeof chatParameters

/** A body whose possible members are known, but not yet their values. */
export type ChatFields = { readonly [name in ChatParameter | (typeof refusedParameters)[number]]?: unknown }
