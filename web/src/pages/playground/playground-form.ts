import type { Key } from '../../api/shapes.ts'
import type { ChatBody, ChatMessage } from '../../snippets/code.ts'
import { type Lane, type Message, waitsForResults } from './conversation.ts'
import { parseSchema, parseTools } from './json-fields.ts'

// Requests of the playground, built from its settings and a lane of the conversation.

export type Settings = {
  readonly keyId: string
  readonly system: string
  /** As typed; empty is the model's own. */
  readonly temperature: string
  readonly maxTokens: string
  /** Empty is the service's default. */
  readonly effort: string
  readonly search: boolean
  readonly fetch: boolean
  readonly stream: boolean
  /** JSON as typed. */
  readonly tools: string
  readonly format: 'text' | 'json_object' | 'json_schema'
  readonly schema: string
}

export const emptySettings: Settings = {
  keyId: '',
  system: '',
  temperature: '',
  maxTokens: '1024',
  effort: '',
  search: false,
  fetch: false,
  stream: true,
  tools: '',
  format: 'text',
  schema: '',
}

/** The options of the form that the model and the paying key accept. */
export type Abilities = { readonly efforts: readonly string[]; readonly hasWebTools: boolean }

/** Exactly the body of the call: the same for the quote, for sending, and for the code to copy. */
export function bodyOf(settings: Settings, lane: Lane, draft: string, { efforts, hasWebTools }: Abilities): ChatBody {
  const system: ChatMessage[] = settings.system.trim() === '' ? [] : [{ role: 'system', content: settings.system }]
  const asked: ChatMessage[] = draft.trim() === '' ? [] : [{ role: 'user', content: draft }]
  const tools = parseTools(settings.tools)
  const schema = parseSchema(settings.schema)
  return {
    model: lane.model,
    messages: [...system, ...lane.messages.flatMap(asSent), ...asked],
    ...(settings.maxTokens !== '' && { max_tokens: Number(settings.maxTokens) }),
    ...(settings.temperature !== '' && { temperature: Number(settings.temperature) }),
    ...(efforts.includes(settings.effort) && { reasoning_effort: settings.effort }),
    ...(tools.value !== undefined && tools.value.length > 0 && { tools: tools.value }),
    ...(settings.format === 'json_object' && { response_format: { type: 'json_object' } }),
    ...(settings.format === 'json_schema' &&
      schema.value !== undefined && { response_format: { type: 'json_schema', json_schema: schema.value } }),
    ...(settings.stream && { stream: true, stream_options: { include_usage: true, include_cost: true } }),
    web_search: settings.search && hasWebTools,
    web_fetch: settings.fetch && hasWebTools,
  }
}

/** Skips empty answers; includes stopped ones up to where they were stopped. */
function asSent(message: Message): ChatMessage[] {
  if (message.role === 'user') return [{ role: 'user', content: message.content }]
  const { content, toolCalls } = message
  if (content === '' && toolCalls.length === 0) return []
  if (toolCalls.length === 0) return [{ role: 'assistant', content }]
  const calls = toolCalls.map(({ id, name, arguments: given }) => ({
    id,
    type: 'function',
    function: { name, arguments: given },
  }))
  return [
    { role: 'assistant', content: content === '' ? null : content, tool_calls: calls },
    ...toolCalls.map(({ id, result }) => ({ role: 'tool', tool_call_id: id, content: result })),
  ]
}

export type SettingsProblems = { readonly [Field in keyof Settings]?: string }

/** The error of each setting. The service would refuse it or do something unintended. */
export function settingsProblems(settings: Settings): SettingsProblems {
  const temperature = Number(settings.temperature)
  const tools = parseTools(settings.tools)
  const schema = parseSchema(settings.schema)
  return {
    ...(settings.keyId === '' && { keyId: 'Choose the key that pays.' }),
    ...(settings.maxTokens !== '' &&
      !/^[1-9]\d{0,6}$/.test(settings.maxTokens) && { maxTokens: 'Enter a whole number above 0.' }),
    ...(settings.temperature !== '' &&
      !(temperature >= 0 && temperature <= 2) && { temperature: 'Enter a number from 0 to 2.' }),
    ...(tools.problem !== undefined && { tools: tools.problem }),
    ...(settings.format === 'json_schema' &&
      (settings.schema.trim() === ''
        ? { schema: 'Paste the JSON schema of the answer.' }
        : schema.problem !== undefined && { schema: schema.problem })),
  }
}

type PayingKey = Pick<Key, 'name' | 'allowed_models'>

/**
 * The key chosen last time, or else the oldest one without a limit. A key with a limit has its budget for a purpose: it pays only
 * after it was chosen.
 */
export function firstKey(keys: readonly Pick<Key, 'id' | 'created_at' | 'limit'>[], lastKey: string): string {
  if (keys.some(({ id }) => id === lastKey)) return lastKey
  const unlimited = keys.filter(({ limit }) => limit === null)
  return unlimited.sort((a, b) => a.created_at.localeCompare(b.created_at))[0]?.id ?? ''
}

/** Why the key cannot pay for this model. */
export function modelProblem(key: PayingKey | undefined, model: string): string | undefined {
  if (key === undefined || key.allowed_models.length === 0 || key.allowed_models.includes(model)) return undefined
  return `The key “${key.name}” does not allow ${model}.`
}

export type Draft = { readonly lanes: readonly Lane[]; readonly draft: string }

/** Why no call can be made with these settings. */
export function callProblem(
  settings: Settings,
  lanes: readonly Lane[],
  payingKey: PayingKey | undefined,
): string | undefined {
  const [problem] = Object.values(settingsProblems(settings))
  if (problem !== undefined) return problem
  const forbidden = lanes.map(({ model }) => modelProblem(payingKey, model)).find((found) => found !== undefined)
  return forbidden && `${forbidden} Choose another model or another key.`
}

/** Why the draft cannot be sent now. */
export function sendProblem(
  settings: Settings,
  { lanes, draft }: Draft,
  payingKey: PayingKey | undefined,
): string | undefined {
  const problem = callProblem(settings, lanes, payingKey)
  if (problem !== undefined) return problem
  if (lanes.some(waitsForResults)) return 'Write the results of the tool calls and continue, or remove the answer.'
  // An answered conversation has no open question: a call without a new message would only be charged for it again.
  return draft.trim() === '' ? 'Enter a message.' : undefined
}
