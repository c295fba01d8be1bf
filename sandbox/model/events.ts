import { randomBytes } from 'node:crypto'
import type { Answer, CallPart, Ending, MessagePart, Part, ReasoningPart } from './compose.ts'
import { seal } from './reasoning-seal.ts'
import type { Fields, ModelRequest } from './request.ts'

export type ServerEvent = { readonly type: string; readonly sequence_number: number } & Fields

/** A step of production: an output token, an event to send, or a token together with the event that shows it. */
export type Step = { readonly token: boolean; readonly event: ServerEvent | undefined }

export type InputUsage = { readonly tokens: number; readonly cachedTokens: number }

type Steps<Result = void> = Generator<Step, Result>

/** The mutable state while an answer is produced. */
type Production = {
  readonly sealWanted: boolean
  readonly output: Fields[]
  tokensLeft: number
  outputTokens: number
  reasoningTokens: number
  sequence: number
}

/** These endings stop in the middle of an item; the others still close it. */
const abruptEndings: ReadonlySet<Ending> = new Set(['failed', 'error', 'cut', 'end', 'stall'])

/** Produces an answer as the upstream's events, token by token, up to and including the terminal event. */
export function* responseSteps(request: ModelRequest, answer: Answer, input: InputUsage): Steps {
  const { after, how } = answer.stop
  const counts = { tokensLeft: after, outputTokens: 0, reasoningTokens: 0, sequence: 0 }
  const production: Production = { sealWanted: request.sealWanted, output: [], ...counts }
  const response = openResponse(request)
  yield send(production, 'response.created', { response })
  yield send(production, 'response.in_progress', { response })
  const isOver = () => production.tokensLeft === 0 && abruptEndings.has(how)
  if (!isOver()) {
    for (const step of outputSteps(answer, production)) {
      yield step
      if (isOver()) break
    }
  }
  const counted = usageOf(production, input)
  // The real upstream omits usage from a failure, so this one does too unless it was scripted.
  const usage = answer.script.usage === undefined ? (how === 'failed' ? null : counted) : answer.script.usage.value
  yield* terminalSteps(production, how, { ...response, output: production.output, usage })
}

function* terminalSteps(production: Production, ending: Ending, response: Fields): Steps {
  const error = { code: 'server_error', message: 'The sandbox model was asked to fail here.' }
  switch (ending) {
    case 'completed': {
      const completed = { ...response, status: 'completed', completed_at: nowSeconds() }
      return yield send(production, 'response.completed', { response: completed })
    }
    case 'max_output_tokens':
    case 'content_filter': {
      const incomplete = { ...response, status: 'incomplete', incomplete_details: { reason: ending } }
      return yield send(production, 'response.incomplete', { response: incomplete })
    }
    case 'failed':
      return yield send(production, 'response.failed', { response: { ...response, status: 'failed', error } })
    case 'error':
      return yield send(production, 'error', { ...error, param: null })
  }
}

function* outputSteps(answer: Answer, production: Production): Steps {
  for (const part of answer.parts) {
    // A completed answer may have an empty part after its last token; any other answer ends here.
    if (production.tokensLeft === 0 && answer.stop.how !== 'completed') return
    const item = yield* itemSteps(part, production)
    yield send(production, 'response.output_item.done', { output_index: production.output.length, item })
    production.output.push(item)
  }
}

/** The steps of one output item up to its final form. */
function* itemSteps(part: Part, production: Production): Steps<Fields> {
  switch (part.kind) {
    case 'reasoning':
      return yield* reasoningSteps(part, production)
    case 'message':
      return yield* messageSteps(part, production)
    case 'function_call':
      return yield* callSteps(part, production)
  }
}

const citedLength = 20

function* messageSteps(part: MessagePart, production: Production): Steps<Fields> {
  const item = { id: createId('msg'), type: 'message', role: 'assistant', phase: 'final_answer' }
  const place = { ...(yield* addItem(production, item, { status: 'in_progress', content: [] })), content_index: 0 }
  const isText = part.content === 'output_text'
  const contentOf = (text: string, annotations: readonly Fields[]) =>
    isText ? { type: 'output_text', text, annotations, logprobs: [] } : { type: 'refusal', refusal: text }
  const logprobs = isText ? { logprobs: [] } : {}
  yield send(production, 'response.content_part.added', { ...place, part: contentOf('', []) })
  const text = yield* deltaSteps(part.tokens, production, `response.${part.content}.delta`, { ...place, ...logprobs })
  const annotations = part.citedUrls.map((url) => ({
    type: 'url_citation',
    url,
    title: URL.parse(url)?.hostname ?? url,
    start_index: 0,
    end_index: Math.min(citedLength, text.length),
  }))
  for (const [annotation_index, annotation] of annotations.entries()) {
    yield send(production, 'response.output_text.annotation.added', { ...place, annotation_index, annotation })
  }
  const whole = isText ? { text, ...logprobs } : { refusal: text }
  yield send(production, `response.${part.content}.done`, { ...place, ...whole })
  yield send(production, 'response.content_part.done', { ...place, part: contentOf(text, annotations) })
  return { ...item, status: statusOf(text, part.tokens), content: [contentOf(text, annotations)] }
}

function* callSteps(part: CallPart, production: Production): Steps<Fields> {
  const item = { id: createId('fc'), type: 'function_call', call_id: createId('call'), name: part.name }
  const place = yield* addItem(production, item, { status: 'in_progress', arguments: '' })
  const given = yield* deltaSteps(part.tokens, production, 'response.function_call_arguments.delta', place)
  yield send(production, 'response.function_call_arguments.done', { ...place, name: part.name, arguments: given })
  return { ...item, status: statusOf(given, part.tokens), arguments: given }
}

function* reasoningSteps(part: ReasoningPart, production: Production): Steps<Fields> {
  const item = { id: createId('rs'), type: 'reasoning' }
  const contents = seal(item.id, part.paragraphs.flat().join(''))
  // As with the real upstream, the contents are complete only when the item is done: replaying these must fail.
  const unfinished = production.sealWanted ? { encrypted_content: contents.slice(0, 64) } : {}
  const place = yield* addItem(production, item, { summary: [], ...unfinished })
  const texts = yield* paragraphSteps(part, place, production)
  production.reasoningTokens = production.outputTokens
  return {
    ...item,
    summary: part.shown === 'summary' ? texts.map((text) => ({ type: 'summary_text', text })) : [],
    ...(part.shown === 'text' && { content: texts.map((text) => ({ type: 'reasoning_text', text })) }),
    ...(production.sealWanted && { encrypted_content: contents }),
  }
}

/** The events that show reasoning: as summaries or, as open-weight models do, the text itself. */
const reasoningEvents = {
  summary: {
    part: 'reasoning_summary_part',
    text: 'reasoning_summary_text',
    index: 'summary_index',
    type: 'summary_text',
  },
  text: { part: 'content_part', text: 'reasoning_text', index: 'content_index', type: 'reasoning_text' },
} as const

function* paragraphSteps(part: ReasoningPart, item: Fields, production: Production): Steps<string[]> {
  const texts: string[] = []
  for (const [index, tokens] of part.paragraphs.entries()) {
    if (production.tokensLeft === 0) break
    if (part.shown === 'no') {
      yield* deltaSteps(tokens, production, undefined, {})
      continue
    }
    const names = reasoningEvents[part.shown]
    const place = { ...item, [names.index]: index }
    yield send(production, `response.${names.part}.added`, { ...place, part: { type: names.type, text: '' } })
    const text = yield* deltaSteps(tokens, production, `response.${names.text}.delta`, place)
    yield send(production, `response.${names.text}.done`, { ...place, text })
    yield send(production, `response.${names.part}.done`, { ...place, part: { type: names.type, text } })
    texts.push(text)
  }
  return texts
}

function* addItem(production: Production, item: Fields, unfinished: Fields): Steps<Fields> {
  const output_index = production.output.length
  yield send(production, 'response.output_item.added', { output_index, item: { ...item, ...unfinished } })
  return { item_id: item.id, output_index }
}

/** One step per token until all are sent or the limit is reached; without a type they are not shown. */
function* deltaSteps(
  tokens: readonly string[],
  production: Production,
  type: string | undefined,
  place: Fields,
): Steps<string> {
  let text = ''
  for (const delta of tokens) {
    if (production.tokensLeft === 0) break
    production.tokensLeft -= 1
    production.outputTokens += 1
    text += delta
    const isVisible = type !== undefined && delta !== ''
    yield { token: true, event: isVisible ? send(production, type, { ...place, delta }).event : undefined }
  }
  return text
}

function statusOf(text: string, tokens: readonly string[]): string {
  return text === tokens.join('') ? 'completed' : 'incomplete'
}

function send(production: Production, type: string, payload: Fields): Step & { event: ServerEvent } {
  const event = { type, sequence_number: production.sequence, ...payload }
  production.sequence += 1
  return { token: false, event }
}

function usageOf(production: Production, input: InputUsage): Fields {
  return {
    input_tokens: input.tokens,
    input_tokens_details: { cached_tokens: input.cachedTokens, cache_write_tokens: 0 },
    output_tokens: production.outputTokens,
    output_tokens_details: { reasoning_tokens: production.reasoningTokens },
    total_tokens: input.tokens + production.outputTokens,
  }
}

/** The initial response: mostly the request repeated, with the upstream's defaults. */
function openResponse(request: ModelRequest): Fields {
  const { reasoning, text, max_output_tokens, metadata, store, temperature, tool_choice, tools, top_p } = request.body
  return {
    id: createId('resp'),
    object: 'response',
    created_at: nowSeconds(),
    completed_at: null,
    status: 'in_progress',
    background: false,
    error: null,
    incomplete_details: null,
    instructions: request.body.instructions ?? null,
    max_output_tokens: max_output_tokens ?? null,
    metadata: metadata ?? {},
    model: request.model,
    output: [],
    parallel_tool_calls: request.parallelToolCalls,
    previous_response_id: null,
    prompt_cache_key: request.promptCacheKey ?? null,
    reasoning: { summary: null, ...(reasoning as Fields | undefined), effort: request.effort },
    service_tier: 'default',
    store: store ?? true,
    temperature: temperature ?? 1,
    text: { format: { type: 'text' }, verbosity: 'medium', ...(text as Fields | undefined) },
    tool_choice: tool_choice ?? 'auto',
    tools: tools ?? [],
    top_p: top_p ?? 1,
    truncation: 'disabled',
    usage: null,
  }
}

function createId(prefix: string): string {
  return `${prefix}_${randomBytes(16).toString('hex')}`
}

function nowSeconds(): number {
  return Math.floor(Date.now() / 1000)
}
