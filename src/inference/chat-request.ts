import { ServiceError } from '../errors.ts'
import { type Message, parseMessages } from './chat-messages.ts'
import {
  type ChatFields,
  maxTokensDefault,
  promptCacheKeyCharactersMax,
  type ReasoningEffort,
  reasoningEfforts,
  temperatureMax,
} from './chat-parameters.ts'
import { type FunctionTool, parseToolChoice, parseTools, type ToolChoice, type ToolUse } from './chat-tools.ts'
import {
  cutText,
  InvalidValueError,
  isAbsent,
  isObject,
  listed,
  oneOf,
  optional,
  quoted,
  readBoolean,
  readObject,
  readString,
  UnsupportedParameterError,
  wrongValue,
} from './parameter.ts'
import { parseResponseFormat, type ResponseFormat } from './response-format.ts'

/**
 * A completely parsed request: every member is sent upstream and priced exactly as it is here. It shares no object with the body.
 */
export type ChatRequest = {
  readonly model: string
  readonly messages: readonly Message[]
  readonly stream: boolean
  readonly includeUsage: boolean
  /** Whether to send chunks with the running cost. */
  readonly includeCost: boolean
  /** The requested limit. It is quoted and billed, even if the upstream's minimum is larger. */
  readonly maxTokens: number
  readonly tools: readonly FunctionTool[]
  readonly toolChoice: ToolChoice
  readonly parallelToolCalls?: boolean | undefined
  readonly responseFormat: ResponseFormat
  readonly reasoningEffort: ReasoningEffort
  readonly temperature?: number | undefined
  readonly promptCacheKey?: string | undefined
  /** The client's choice. Whether our tools are on is decided where their providers are known. */
  readonly webSearch?: boolean | undefined
  readonly webFetch?: boolean | undefined
}

/** The part of the price list that parsing needs. */
export type ModelDirectory = {
  readonly defaultModel: string
  /** Every offered id, for the error message about an unknown model. */
  readonly ids: readonly string[]
  maxOutputTokens(model: string): number | undefined
}

const readEffort = oneOf(reasoningEfforts)

/**
 * Parses the body of a chat completion. Unknown members are ignored, and null means absent.
 * @throws {ServiceError} with a 4xx code for a request that cannot be served as asked.
 */
export function parseChatRequest(body: unknown, models: ModelDirectory): ChatRequest {
  if (!isObject(body)) throw new InvalidValueError('The request body must be a JSON object.')
  const fields: ChatFields = body
  // The order of these lines is the documented order of checks: a request with two mistakes always gets the same error.
  const { model, outputTokensMax } = parseModel(fields.model, models)
  const messages = parseMessages(fields.messages)
  const stream = optional(fields.stream, 'stream', readBoolean) ?? false
  const includeUsage = stream && parseIncludeUsage(fields)
  const includeCost = stream && parseIncludeCost(fields)
  const maxTokens = parseMaxTokens(fields, model, outputTokensMax)
  const tools = parseTools(fields.tools)
  const toolUse = parseToolChoice(fields.tool_choice, tools)
  const responseFormat = parseResponseFormat(fields.response_format)
  const reasoningEffort = parseReasoningEffort(fields) ?? 'low'
  refuseSeveralChoices(fields.n)
  const webSearch = parseWebToolSwitch(fields, 'web_search', toolUse, tools)
  const webFetch = parseWebToolSwitch(fields, 'web_fetch', toolUse, tools)
  const parallelToolCalls = optional(fields.parallel_tool_calls, 'parallel_tool_calls', readBoolean)
  const temperature = optional(fields.temperature, 'temperature', readTemperature)
  const promptCacheKey = optional(fields.prompt_cache_key, 'prompt_cache_key', readPromptCacheKey)
  refuseUnsupported(fields)
  return {
    model,
    messages,
    stream,
    includeUsage,
    includeCost,
    maxTokens,
    ...toolUse,
    parallelToolCalls,
    responseFormat,
    reasoningEffort,
    temperature,
    promptCacheKey,
    webSearch,
    webFetch,
  }
}

function parseModel(value: unknown, models: ModelDirectory): { model: string; outputTokensMax: number } {
  const model = optional(value, 'model', readString) ?? models.defaultModel
  const outputTokensMax = models.maxOutputTokens(model)
  // No fallback to another model: it would have another price and another answer.
  if (outputTokensMax === undefined) throw new ModelNotFoundError(model, models.ids)
  return { model, outputTokensMax }
}

/** Either spelling requests the usage chunk: OpenAI's `stream_options.include_usage` or OpenRouter's `usage.include`. */
function parseIncludeUsage(fields: ChatFields): boolean {
  const options = optional(fields.stream_options, 'stream_options', readObject)
  const includeUsage = optional(options?.include_usage, 'stream_options.include_usage', readBoolean) ?? false
  const usage = optional(fields.usage, 'usage', readObject)
  return (optional(usage?.include, 'usage.include', readBoolean) ?? false) || includeUsage
}

/** Our own extension: other APIs do not report costs. */
function parseIncludeCost(fields: ChatFields): boolean {
  const options = optional(fields.stream_options, 'stream_options', readObject)
  return optional(options?.include_cost, 'stream_options.include_cost', readBoolean) ?? false
}

/**
 * OpenAI's `reasoning_effort` or OpenRouter's `reasoning.effort`. The other members of `reasoning` have no counterpart upstream.
 */
function parseReasoningEffort(fields: ChatFields): ReasoningEffort | undefined {
  const effort = optional(fields.reasoning_effort, 'reasoning_effort', readEffort)
  const reasoning = optional(fields.reasoning, 'reasoning', readObject)
  const nested = optional(reasoning?.effort, 'reasoning.effort', readEffort)
  if (effort !== undefined && nested !== undefined && effort !== nested) {
    throw new InvalidValueError(
      `\`reasoning_effort\` is ${quoted(effort)} and \`reasoning.effort\` is ${quoted(nested)}; they mean the same. Send one of them.`,
      'reasoning.effort',
    )
  }
  return effort ?? nested
}

/** Clients send either name. Both limit the same tokens, so they must not contradict each other. */
function parseMaxTokens(fields: ChatFields, model: string, outputTokensMax: number): number {
  const read = (name: 'max_tokens' | 'max_completion_tokens') =>
    optional(fields[name], name, (value) => readTokens(value, name, model, outputTokensMax))
  const maxTokens = read('max_tokens')
  const maxCompletionTokens = read('max_completion_tokens')
  if (maxTokens !== undefined && maxCompletionTokens !== undefined && maxTokens !== maxCompletionTokens) {
    throw new InvalidValueError(
      `\`max_tokens\` is ${maxTokens} and \`max_completion_tokens\` is ${maxCompletionTokens}; they mean the same. Send one of them.`,
      'max_completion_tokens',
    )
  }
  return maxTokens ?? maxCompletionTokens ?? Math.min(maxTokensDefault, outputTokensMax)
}

function readTokens(value: unknown, place: string, model: string, outputTokensMax: number): number {
  const expected = `a whole number from 1 to ${outputTokensMax}, the output limit of ${model}`
  if (typeof value !== 'number' || !Number.isSafeInteger(value)) throw wrongValue(place, value, expected)
  if (value < 1 || value > outputTokensMax) throw wrongValue(place, value, expected)
  return value
}

function refuseSeveralChoices(value: unknown): void {
  if (isAbsent(value) || value === 1) return
  throw wrongValue('n', value, '1 or absent: for several answers, send several requests')
}

/**
 * Refuses a client's tool with the name of one of ours: the model's answer could not distinguish them. With `none` our tools are
 * off, so nothing clashes. `sentTools` are all tools of the request, before `allowed_tools` selected some: the error names the
 * index in those.
 */
function parseWebToolSwitch(
  fields: ChatFields,
  name: 'web_search' | 'web_fetch',
  { tools, toolChoice }: ToolUse,
  sentTools: readonly FunctionTool[],
): boolean | undefined {
  const isOn = optional(fields[name], name, readBoolean)
  if (isOn !== true || toolChoice === 'none' || !tools.some((tool) => tool.name === name)) return isOn
  throw new UnsupportedParameterError(
    `A tool of your own is named \`${name}\` while \`${name}\` is true. Rename yours, or send \`${name}\` as false.`,
    `tools[${sentTools.findIndex((tool) => tool.name === name)}].function.name`,
  )
}

function readTemperature(value: unknown, place: string): number {
  if (typeof value === 'number' && value >= 0 && value <= temperatureMax) return value
  throw wrongValue(place, value, `a number from 0 to ${temperatureMax}`)
}

/** An empty key counts as absent: it would put every client that sends one into the same cache bucket. */
function readPromptCacheKey(value: unknown, place: string): string | undefined {
  return cutText(readString(value, place), promptCacheKeyCharactersMax) || undefined
}

/** Refuses parameters that would change the answer: ignoring them silently would be worse. */
function refuseUnsupported(fields: ChatFields): void {
  for (const [name, advice] of [
    ['functions', 'Send `tools` instead.'],
    ['function_call', 'Send `tool_choice` instead.'],
  ] as const) {
    if (!isAbsent(fields[name])) throw new UnsupportedParameterError(`\`${name}\` is not supported. ${advice}`, name)
  }
  const audio = Array.isArray(fields.modalities) ? fields.modalities.indexOf('audio') : -1
  if (audio !== -1) {
    throw new UnsupportedParameterError(
      '`modalities` asks for audio; answers are text only. Send ["text"] or leave it out.',
      `modalities[${audio}]`,
    )
  }
}

export class ModelNotFoundError extends ServiceError {
  constructor(model: string, ids: readonly string[]) {
    super('model_not_found', `Unknown model ${quoted(model)}. Use one of ${listed(ids)}.`, { param: 'model' })
  }
}
