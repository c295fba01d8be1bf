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

export const messagesMax = 10_000
export const contentPartsMax = 1_000
export const toolCallsMax = 128
export const toolCallIdCharactersMax = 512
export const toolsMax = 128

const textPart = z.looseObject({ type: z.literal('text'), text: z.string() }).meta({ id: 'TextPart' })
const refusalPart = z.looseObject({ type: z.literal('refusal'), refusal: z.string() })
const content = z.union([z.string(), z.array(textPart).min(1).max(contentPartsMax)])
const toolCallId = z.string().max(toolCallIdCharactersMax)

const message = z
  .union([
    z.looseObject({ role: z.enum(['system', 'developer']), content }),
    z.looseObject({ role: z.literal('user'), content }),
    z.looseObject({
      role: z.literal('assistant'),
      content: z
        .union([
          z.string(),
          z
            .array(z.union([textPart, refusalPart]))
            .min(1)
            .max(contentPartsMax),
        ])
        .nullish(),
      refusal: z.string().nullish(),
      tool_calls: z
        .array(
          z.looseObject({
            id: toolCallId,
            type: z.literal('function').nullish(),
            function: z.looseObject({ name: z.string().min(1), arguments: z.string() }),
          }),
        )
        .max(toolCallsMax)
        .nullish(),
      reasoning_content: z.unknown().optional().meta({ description: 'Accepted as it was sent; not forwarded' }),
      reasoning: z.unknown().optional().meta({ description: 'Accepted as it was sent; not forwarded' }),
    }),
    z.looseObject({ role: z.literal('tool'), tool_call_id: toolCallId, content: content.nullish() }),
  ])
  .meta({ id: 'Message', description: 'Every tool call has its result, and every result its call' })

const name = z
  .string()
  .regex(/^[A-Za-z0-9_-]{1,64}$/)
  .meta({ examples: ['get_weather'] })
const jsonSchema = z.record(z.string(), z.unknown()).meta({ description: 'A JSON Schema' })

const tool = z
  .looseObject({
    type: z.literal('function'),
    function: z.looseObject({
      name,
      description: z.string().nullish(),
      parameters: jsonSchema.nullish(),
      strict: z.boolean().nullish(),
    }),
  })
  .meta({ id: 'Tool' })
const namedTool = z.looseObject({ type: z.literal('function'), function: z.looseObject({ name }) })

const toolChoice = z
  .union([
    z.enum(toolChoiceWords),
    namedTool,
    z.looseObject({
      type: z.literal('allowed_tools'),
      allowed_tools: z.looseObject({
        mode: z.enum(['auto', 'required']),
        tools: z.array(namedTool).min(1).max(toolsMax),
      }),
    }),
  ])
  .meta({ id: 'ToolChoice' })

const responseFormat = z
  .union([
    z.looseObject({ type: z.enum(['text', 'json_object']) }),
    z.looseObject({
      type: z.literal('json_schema'),
      json_schema: z.looseObject({
        name,
        description: z.string().nullish(),
        schema: jsonSchema.nullish(),
        strict: z.boolean().nullish(),
      }),
    }),
  ])
  .meta({ id: 'ResponseFormat' })

export const chatParameters = {
  model: z.string().nullish().meta({
    description:
      'A model id from the model list. An unknown name is refused with 404; there is no fallback. Without it, the default model of the service',
  }),
  messages: z.array(message).min(1).max(messagesMax),
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
  tools: z.array(tool).max(toolsMax).nullish(),
  tool_choice: toolChoice.nullish(),
  parallel_tool_calls: z.boolean().nullish(),
  response_format: responseFormat.nullish(),
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

/** Members that are accepted and not forwarded. So are unknown ones; openapi.json lists these so that typed clients can send them. */
export const parametersWithoutEffect = [
  'top_p',
  'presence_penalty',
  'frequency_penalty',
  'seed',
  'logprobs',
  'stop',
  'logit_bias',
  'user',
] as const

/** Members that are refused: ignoring them would change the answer. */
export const refusedParameters = ['functions', 'function_call', 'modalities'] as const

export type ChatParameter = keyof typeof chatParameters

/** A body whose possible members are known, but not yet their values. */
export type ChatFields = { readonly [name in ChatParameter | (typeof refusedParameters)[number]]?: unknown }
