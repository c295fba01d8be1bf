import type { Model, PriceList } from '../billing/price-list.ts'
import { requestLimits } from '../billing/quote.ts'
import { checkModel, isModelAllowed } from '../chat/key-rules.ts'
import { type KeyOptions, noOptions } from '../identity/key-options.ts'
import { type ChatParameter, reasoningEfforts } from '../inference/chat-parameters.ts'
import { ModelNotFoundError } from '../inference/chat-request.ts'
import { format, type Usdc } from '../money/usdc.ts'

export type ListModelsOptions = {
  readonly prices: PriceList
  /** Prices of tools that are not configured are not listed. */
  readonly hasSearch: boolean
  readonly inFlightCap: Usdc
  readonly publicUrl: string
}

/** `GET /v1/models`: OpenAI's format plus fields that clients of other routers read. Limited to the models of the key. */
export function listModels(options: ListModelsOptions, key: KeyOptions = noOptions): object {
  const models = [...options.prices.models.values()].filter(({ id }) => isModelAllowed(key, id))
  const data = models.map((model) => describeModel(model, options))
  return { object: 'list', data, links: { next: null }, total_count: data.length }
}

/** `GET /v1/models/{id}`. */
export function getModel(id: string, options: ListModelsOptions, key: KeyOptions = noOptions): object {
  const model = options.prices.models.get(id)
  if (model === undefined) throw new ModelNotFoundError(id, [...options.prices.models.keys()])
  checkModel(key, id)
  return describeModel(model, options)
}

// OpenAI's format has a date per model. It must not change between calls.
const created = 1_767_225_600

function describeModel(model: Model, { prices, hasSearch, inFlightCap, publicUrl }: ListModelsOptions): object {
  const limits = requestLimits(model, inFlightCap)
  const input = perToken(model.inputPerMillion)
  const output = perToken(model.outputPerMillion)
  return {
    id: model.id,
    object: 'model',
    created,
    owned_by: 'penny',
    name: model.id,
    canonical_slug: model.id,
    description: `${model.id}, paid per request in USDC.`,
    type: 'language',
    tags: ['reasoning', 'tool-use', ...(hasSearch ? ['web-search'] : [])],
    context_length: model.contextLength,
    context_window: model.contextLength,
    max_model_len: model.contextLength,
    max_output_tokens: model.maxOutputTokens,
    // Agents send this value, or the top provider's, as `max_tokens`. More would be refused.
    max_tokens: limits.completionTokens,
    architecture: {
      modality: 'text->text',
      input_modalities: ['text'],
      output_modalities: ['text'],
      tokenizer: 'o200k_base',
      instruct_type: null,
    },
    // USDC per token or per call, as decimal strings.
    pricing: {
      prompt: input,
      completion: output,
      input,
      output,
      request: '0',
      image: '0',
      ...(hasSearch && { web_search: format(prices.searchPerCall) }),
      web_fetch: '0',
      internal_reasoning: output,
      input_cache_read: input,
    },
    top_provider: {
      context_length: model.contextLength,
      max_completion_tokens: limits.completionTokens,
      is_moderated: false,
    },
    // Clients that validate the list require both or neither.
    per_request_limits: { prompt_tokens: limits.promptTokens, completion_tokens: limits.completionTokens },
    supported_parameters: supportedParameters,
    supported_voices: null,
    default_parameters: null,
    reasoning: {
      mandatory: false,
      default_effort: 'low',
      supported_efforts: reasoningEfforts,
    },
    links: { details: `${publicUrl}/v1/models/${encodeURIComponent(model.id)}` },
  }
}

const supportedParameters: readonly (ChatParameter | 'structured_outputs')[] = [
  'max_tokens',
  'max_completion_tokens',
  'temperature',
  'tools',
  'tool_choice',
  'parallel_tool_calls',
  'response_format',
  'structured_outputs',
  'reasoning_effort',
]

/** Converts a price per million to a price per token. Exact: twelve decimals are enough. */
function perToken(perMillion: bigint): string {
  const digits = perMillion.toString().padStart(13, '0')
  const fraction = digits.slice(-12).replace(/0+$/, '')
  return fraction === '' ? digits.slice(0, -12) : `${digits.slice(0, -12)}.${fraction}`
}
