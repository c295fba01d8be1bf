import { isSealed } from './reasoning-seal.ts'

export type Fields = Readonly<Record<string, unknown>>

export type InputItem =
  | { readonly kind: 'message'; readonly role: string; readonly text: string }
  | { readonly kind: 'function_call'; readonly callId: string; readonly name: string; readonly text: string }
  | { readonly kind: 'function_call_output'; readonly callId: string; readonly text: string }
  | { readonly kind: 'reasoning'; readonly text: string }

export type FunctionTool = { readonly name: string; readonly description: string; readonly parameters: unknown }

export type ModelRequest = {
  /** As received. The response repeats parts of it, and a directive can echo it. */
  readonly body: Fields
  readonly model: string
  readonly instructions: string
  readonly items: readonly InputItem[]
  readonly tools: readonly FunctionTool[]
  /** The tools that may be called now: all, the allowed ones or the named one. */
  readonly toolChoice: { readonly mode: 'none' | 'auto' | 'required'; readonly tools: readonly FunctionTool[] }
  readonly parallelToolCalls: boolean
  readonly format: { readonly type: 'text' | 'json_object' | 'json_schema'; readonly schema: unknown }
  readonly effort: Effort
  readonly summaryWanted: boolean
  readonly sealWanted: boolean
  readonly maxOutputTokens: number
  readonly stream: boolean
  readonly promptCacheKey: string | undefined
}

const efforts = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'] as const
export type Effort = (typeof efforts)[number]

const outputTokensMin = 16
const callIdLengthMax = 64

const sharedParameters =
  'conversation input instructions model parallel_tool_calls previous_response_id reasoning text tool_choice tools truncation'
const countParameters = new Set(`${sharedParameters} personality`.split(' '))
const createParameters = new Set(
  `${sharedParameters} access_programs background context_management image include max_output_tokens
  max_tool_calls metadata moderation prompt prompt_cache_key prompt_cache_options prompt_cache_retention
  safety_identifier service_tier store stream stream_options temperature top_logprobs top_p user`.split(/\s+/),
)

/** Parses the body of `POST /v1/responses`. Refuses what the real upstream refuses, with its messages. */
export function parseCreateRequest(body: unknown): ModelRequest {
  const request = parseRequest(body, createParameters)
  if (request.model === '') throw missing('model')
  if (request.items.length === 0) throw missing('input')
  return request
}

/** Parses the body of `POST /v1/responses/input_tokens`, where no member is required. */
export function parseCountRequest(body: unknown): ModelRequest {
  return parseRequest(body, countParameters)
}

function parseRequest(body: unknown, known: ReadonlySet<string>): ModelRequest {
  if (!isFields(body)) throw new RequestError('We could not parse the JSON body of your request.')
  const unknown = Object.keys(body).find((name) => !known.has(name))
  if (unknown !== undefined) {
    throw new RequestError(`Unknown parameter: '${unknown}'.`, { param: unknown, code: 'unknown_parameter' })
  }
  // Null means absent.
  return parseFields(Object.fromEntries(Object.entries(body).filter(([, value]) => value !== null)), body)
}

function parseFields(fields: Fields, body: Fields): ModelRequest {
  if (fields.previous_response_id !== undefined) {
    const message = `Previous response with id '${fields.previous_response_id}' not found.`
    throw new RequestError(message, { param: 'previous_response_id', code: 'previous_response_not_found' })
  }
  const items = parseInput(fields.input)
  checkCallPairs(items)
  const tools = optional(fields, 'tools', Array.isArray, 'an array')?.map(parseTool) ?? []
  const reasoning = optional(fields, 'reasoning', isFields, 'an object') ?? {}
  const include = optional(fields, 'include', Array.isArray, 'an array') ?? []
  return {
    body,
    model: optional(fields, 'model', isString, 'a string') ?? '',
    instructions: optional(fields, 'instructions', isString, 'a string') ?? '',
    items,
    tools,
    toolChoice: parseToolChoice(fields.tool_choice ?? 'auto', tools),
    parallelToolCalls: optional(fields, 'parallel_tool_calls', isBoolean, 'a boolean') ?? true,
    format: parseFormat(optional(fields, 'text', isFields, 'an object'), items),
    effort: oneOf(reasoning.effort ?? 'medium', efforts, 'reasoning.effort'),
    summaryWanted: (reasoning.summary ?? null) !== null,
    sealWanted: include.includes('reasoning.encrypted_content'),
    maxOutputTokens: parseMaxOutputTokens(fields),
    stream: optional(fields, 'stream', isBoolean, 'a boolean') ?? false,
    promptCacheKey: optional(fields, 'prompt_cache_key', isString, 'a string'),
  }
}

function parseMaxOutputTokens(fields: Fields): number {
  const name = 'max_output_tokens'
  const value = optional(fields, name, (candidate): candidate is number => Number.isInteger(candidate), 'an integer')
  if (value === undefined) return Number.POSITIVE_INFINITY
  if (value < outputTokensMin) {
    const message = `Invalid '${name}': integer below minimum value. Expected a value >= ${outputTokensMin}, but got ${value} instead.`
    throw new RequestError(message, { param: name, code: 'integer_below_min_value' })
  }
  return value
}

function parseInput(input: unknown): InputItem[] {
  if (input === undefined) return []
  if (typeof input === 'string') return [{ kind: 'message', role: 'user', text: input }]
  if (!Array.isArray(input)) throw wrongType('input', 'a string or an array', input)
  return input.map((item, index) => parseItem(item, `input[${index}]`))
}

function parseItem(item: unknown, param: string): InputItem {
  if (!isFields(item)) throw wrongType(param, 'an object', item)
  const kinds = ['message', 'function_call', 'function_call_output', 'reasoning', 'item_reference'] as const
  const kind = oneOf(item.type ?? 'message', kinds, `${param}.type`)
  switch (kind) {
    case 'message': {
      const role = oneOf(item.role, ['user', 'assistant', 'system', 'developer'] as const, `${param}.role`)
      const parts = role === 'assistant' ? outputParts : inputParts
      return { kind, role, text: contentText(item.content, parts, `${param}.content`) }
    }
    case 'function_call': {
      const [name, given] = [required(item, 'name', param), required(item, 'arguments', param)]
      return { kind, callId: parseCallId(item, param), name, text: `${name}${given}` }
    }
    case 'function_call_output':
      return {
        kind,
        callId: parseCallId(item, param),
        text: contentText(item.output, inputParts, `${param}.output`),
      }
    case 'reasoning':
      return parseReasoning(item, param)
    case 'item_reference':
      throw notStored(item.id)
  }
}

const inputParts = ['input_text', 'input_image', 'input_file'] as const
const outputParts = ['output_text', 'refusal'] as const

/** The text of a string or of typed parts. Images and files are accepted but have no text. */
function contentText(content: unknown, partTypes: readonly string[], param: string): string {
  if (typeof content === 'string') return content
  if (!Array.isArray(content)) throw wrongType(param, 'a string or an array', content)
  const texts = content.map((part, index) => {
    if (!isFields(part)) throw wrongType(`${param}[${index}]`, 'an object', part)
    const type = oneOf(part.type, partTypes, `${param}[${index}].type`)
    if (type === 'refusal') return required(part, 'refusal', `${param}[${index}]`)
    return type.endsWith('_text') ? required(part, 'text', `${param}[${index}]`) : ''
  })
  return texts.join('\n')
}

function parseCallId(item: Fields, param: string): string {
  const callId = required(item, 'call_id', param)
  if (callId.length <= callIdLengthMax) return callId
  const message = `Invalid '${param}.call_id': string too long. Expected a string with maximum length ${callIdLengthMax}, but got a string with length ${callId.length} instead.`
  throw new RequestError(message, { param: `${param}.call_id`, code: 'string_above_max_length' })
}

function parseReasoning(item: Fields, param: string): InputItem {
  const [id, contents] = [item.id ?? undefined, item.encrypted_content ?? undefined]
  // Nothing is stored here, like `store: false` upstream: reasoning can only be replayed sealed.
  if (contents === undefined) throw notStored(id)
  if (typeof contents !== 'string' || !isSealed(contents, id === undefined ? undefined : String(id))) {
    const message = `The encrypted content for item ${id} could not be verified. Reason: Encrypted content could not be decrypted or parsed.`
    throw new RequestError(message, { param: `${param}.encrypted_content`, code: 'invalid_encrypted_content' })
  }
  const shown = [item.summary, item.content].flatMap((parts) => (Array.isArray(parts) ? parts : []))
  return { kind: 'reasoning', text: shown.map((part) => (isFields(part) ? String(part.text ?? '') : '')).join('\n') }
}

function checkCallPairs(items: readonly InputItem[]): void {
  const open = new Set<string>()
  const called = new Set<string>()
  for (const item of items) {
    if (item.kind === 'function_call') {
      open.add(item.callId)
      called.add(item.callId)
    }
    if (item.kind !== 'function_call_output') continue
    if (!called.has(item.callId)) {
      const message = `No tool call found for function call output with call_id ${item.callId}.`
      throw new RequestError(message, { param: 'input' })
    }
    open.delete(item.callId)
  }
  for (const callId of open) {
    throw new RequestError(`No tool output found for function call ${callId}.`, { param: 'input' })
  }
}

function parseTool(tool: unknown, index: number): FunctionTool {
  const param = `tools[${index}]`
  if (!isFields(tool)) throw wrongType(param, 'an object', tool)
  oneOf(tool.type, ['function'] as const, `${param}.type`)
  const name = required(tool, 'name', param)
  return { name, description: String(tool.description ?? ''), parameters: tool.parameters ?? { type: 'object' } }
}

function parseToolChoice(choice: unknown, tools: readonly FunctionTool[]): ModelRequest['toolChoice'] {
  if (!isFields(choice)) {
    const mode = oneOf(choice, ['none', 'auto', 'required'] as const, 'tool_choice')
    if (mode !== 'required' || tools.length > 0) return { mode, tools }
    const message = "Tool choice 'required' must be specified with 'tools' parameter."
    throw new RequestError(message, { param: 'tool_choice' })
  }
  const type = oneOf(choice.type, ['function', 'allowed_tools'] as const, 'tool_choice.type')
  const named = type === 'function' ? [choice] : Array.isArray(choice.tools) ? choice.tools : []
  const allowed = tools.filter((tool) => named.some((entry: unknown) => isFields(entry) && entry.name === tool.name))
  if (allowed.length === 0) {
    throw new RequestError(`Tool choice '${type}' not found in 'tools' parameter.`, { param: 'tool_choice' })
  }
  const mode = type === 'function' ? 'required' : oneOf(choice.mode, ['auto', 'required'] as const, 'tool_choice.mode')
  return { mode, tools: allowed }
}

function parseFormat(text: Fields | undefined, items: readonly InputItem[]): ModelRequest['format'] {
  const format = text?.format ?? { type: 'text' }
  if (!isFields(format)) throw wrongType('text.format', 'an object', format)
  const type = oneOf(format.type, ['text', 'json_object', 'json_schema'] as const, 'text.format.type')
  if (type === 'json_schema') {
    required(format, 'name', 'text.format')
    if (!isFields(format.schema)) throw missing('text.format.schema')
  }
  if (type === 'json_object' && !items.some((item) => /json/i.test(item.text))) {
    const message =
      "Response input messages must contain the word 'json' in some form to use 'text.format' of type 'json_object'."
    throw new RequestError(message, { param: 'input' })
  }
  return { type, schema: format.schema }
}

function optional<T>(
  fields: Fields,
  name: string,
  is: (value: unknown) => value is T,
  expected: string,
): T | undefined {
  const value = fields[name]
  if (value === undefined || is(value)) return value
  throw wrongType(name, expected, value)
}

function required(fields: Fields, name: string, param: string): string {
  const value = fields[name]
  if (value === undefined) throw missing(`${param}.${name}`)
  if (typeof value !== 'string') throw wrongType(`${param}.${name}`, 'a string', value)
  return value
}

function oneOf<T extends string>(value: unknown, allowed: readonly T[], param: string): T {
  const found = allowed.find((candidate) => candidate === value)
  if (found !== undefined) return found
  const list = allowed.map((candidate) => `'${candidate}'`).join(', ')
  const message = `Invalid value: '${value}'. Supported values are: ${list}.`
  throw new RequestError(message, { param, code: 'invalid_value' })
}

export function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function isString(value: unknown): value is string {
  return typeof value === 'string'
}

function isBoolean(value: unknown): value is boolean {
  return typeof value === 'boolean'
}

function missing(param: string): RequestError {
  return new RequestError(`Missing required parameter: '${param}'.`, { param, code: 'missing_required_parameter' })
}

function wrongType(param: string, expected: string, value: unknown): RequestError {
  const got = value === null ? 'null' : Array.isArray(value) ? 'an array' : `a value of type ${typeof value}`
  const message = `Invalid type for '${param}': expected ${expected}, but got ${got} instead.`
  return new RequestError(message, { param, code: 'invalid_type' })
}

function notStored(id: unknown): RequestError {
  const message = `Item with id '${id}' not found. Items are not persisted when \`store\` is set to false.`
  return new RequestError(message, { status: 404, param: 'input' })
}

/** A refusal in the upstream's error format. */
export class RequestError extends Error {
  readonly status: number
  readonly type: string
  readonly param: string | null
  readonly code: string | null

  constructor(message: string, details: { status?: number; type?: string; param?: string; code?: string } = {}) {
    super(message)
    this.name = 'RequestError'
    this.status = details.status ?? 400
    this.type = details.type ?? 'invalid_request_error'
    this.param = details.param ?? null
    this.code = details.code ?? null
  }
}
