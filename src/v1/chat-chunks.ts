import type { AnswerEnd } from '../chat/log.ts'
import { ServiceError } from '../errors.ts'
import type { Annotation, ChatEvent, FinishReason, ToolActivity } from '../inference/chat-events.ts'
import type { Usage } from '../inference/usage.ts'
import { format, fromAtomic, type Usdc } from '../money/usdc.ts'

/** The members that every chunk of a completion, or its single body, starts with. */
export type CompletionHead = {
  readonly id: string
  /** Seconds since 1970. */
  readonly created: number
  readonly model: string
}

/** The charge for an answer, split by what it pays for. */
export type Cost = { readonly prompt: Usdc; readonly completion: Usdc; readonly search: Usdc }

export function costOf({ charged, searchCost, inputCost }: AnswerEnd): Cost {
  return { prompt: inputCost, completion: fromAtomic(charged - searchCost - inputCost), search: searchCost }
}

/** The frames of one stream, each ready to be written. */
export type ChunkRenderer = {
  /** Must come first: clients that see another choice before it lose tool calls and usage. */
  readonly role: string
  /** All frames of these events as one string. `finish` or `error` renders the end. */
  events(events: readonly ChatEvent[]): string
  finish(reason: FinishReason): string
  /** Empty unless the client requested it. */
  usage(usage: Usage, cost: Cost): string
  readonly done: string
  /** The last frame of a failed stream: no `done` follows. */
  error(envelope: object): string
}

/** Keeps proxies from closing a silent stream. Clients skip comments. */
export const keepaliveComment = ': keepalive\n\n'

// Clients expect a string here, not null, and do not interpret it.
const systemFingerprint = 'fp_penny'
const annotationsMax = 1_000

/**
 * Renders the chunks of one answer. The shared part is rendered once; each event adds only its own text. Citations are collected
 * and sent in one chunk at the end: client libraries fail on several lists of them, or keep only one.
 */
export function createChunkRenderer(options: CompletionHead & { readonly includeUsage: boolean }): ChunkRenderer {
  const { includeUsage } = options
  const shared = { object: 'chat.completion.chunk', created: options.created, model: options.model }
  const head = JSON.stringify({ id: options.id, ...shared, system_fingerprint: systemFingerprint }).slice(0, -1)
  // Only the usage chunk has a `usage` key: OpenRouter's SDK rejects `"usage": null`, and OpenAI's schema allows leaving it out.
  const tail = '}\n\n'
  const opening = `data: ${head},"choices":[{"index":0,"delta":`
  const closing = `,"logprobs":null,"finish_reason":null}]`
  const chunk = (delta: string) => opening + delta + closing + tail
  const activity = (tool: ToolActivity) => `${opening}{}${closing},"tool_activity":${jsonLine(tool)}${tail}`
  const runningCost = (event: CostEvent) =>
    `${opening}{}${closing},"running_cost":${JSON.stringify(runningCostBody(event))}${tail}`
  const annotations: Annotation[] = []

  return {
    role: chunk('{"role":"assistant","content":""}'),
    events(events) {
      let frames = ''
      for (const event of events) {
        if (event.type === 'annotation' && annotations.length < annotationsMax) annotations.push(event.annotation)
        if (event.type === 'activity') frames += activity(event.activity)
        if (event.type === 'cost') frames += runningCost(event)
        const delta = deltaOf(event)
        if (delta !== '') frames += chunk(delta)
      }
      return frames
    },
    finish(reason) {
      const cited = annotations.length === 0 ? '' : chunk(jsonLine({ annotations: annotations.map(citation) }))
      return `${cited}${opening}{},"logprobs":null,"finish_reason":"${reason}"}]${tail}`
    },
    usage: (usage, cost) =>
      includeUsage ? `data: ${head},"choices":[],"usage":${JSON.stringify(usageBody(usage, cost))}}\n\n` : '',
    done: 'data: [DONE]\n\n',
    error: (envelope) => `data: ${jsonLine(envelope)}\n\n`,
  }
}

/**
 * JSON without line breaks by any definition. Python's `splitlines` also breaks at three characters that neither JSON nor
 * server-sent events treat as line ends, and clients that use it would cut a frame in half.
 */
function jsonLine(value: unknown): string {
  const json = JSON.stringify(value)
  // Testing first is cheaper than a replace that almost never matches.
  if (!lineEnd.test(json)) return json
  return json.replace(lineEnds, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

const lineEnd = /[\u0085\u2028\u2029]/
const lineEnds = new RegExp(lineEnd, 'g')

/** The JSON that an event adds to the message; empty for events that add nothing. */
function deltaOf(event: ChatEvent): string {
  switch (event.type) {
    case 'text':
      return `{"content":${jsonLine(event.text)}}`
    case 'reasoning': {
      // Some clients read one name, some the other. None is known to show both.
      const text = jsonLine(event.text)
      return `{"reasoning_content":${text},"reasoning":${text}}`
    }
    case 'refusal':
      return `{"refusal":${jsonLine(event.text)}}`
    case 'tool-call': {
      const call = `"id":${jsonLine(event.id)},"type":"function"`
      return `{"tool_calls":[{"index":${event.index},${call},"function":{"name":${jsonLine(event.name)},"arguments":""}}]}`
    }
    case 'tool-arguments':
      return `{"tool_calls":[{"index":${event.index},"function":{"arguments":${jsonLine(event.text)}}}]}`
    default:
      return ''
  }
}

function citation({ url, title, startIndex, endIndex }: Annotation): object {
  return { type: 'url_citation', url_citation: { url, title, start_index: startIndex, end_index: endIndex } }
}

type CostEvent = Extract<ChatEvent, { type: 'cost' }>

function runningCostBody({ cost, promptTokens, completionTokens }: CostEvent): object {
  return {
    cost: asNumber(cost),
    cost_atomic: cost.toString(),
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
  }
}

function usageBody(usage: Usage, cost: Cost): object {
  return {
    prompt_tokens: usage.promptTokens,
    completion_tokens: usage.completionTokens,
    total_tokens: usage.promptTokens + usage.completionTokens,
    prompt_tokens_details: { cached_tokens: usage.cachedTokens },
    completion_tokens_details: { reasoning_tokens: usage.reasoningTokens },
    cost: asNumber(fromAtomic(cost.prompt + cost.completion + cost.search)),
    cost_details: {
      inference: asNumber(fromAtomic(cost.prompt + cost.completion)),
      search: asNumber(cost.search),
      // OpenRouter's SDK rejects `cost_details` without these two members.
      upstream_inference_prompt_cost: asNumber(cost.prompt),
      upstream_inference_completions_cost: asNumber(cost.completion),
    },
  }
}

/** For display only: clients expect a number here. The ledger's row has the exact amount. */
function asNumber(amount: Usdc): number {
  return Number(format(amount))
}

export type AssembledMessage = {
  readonly text: string
  readonly refusal: string
  readonly reasoning: string
  readonly toolCalls: readonly { readonly id: string; readonly name: string; readonly arguments: string }[]
  readonly annotations: readonly Annotation[]
}

export type MessageAssembler = {
  add(events: readonly ChatEvent[]): void
  finish(): AssembledMessage
}

const messageCharactersMax = 32 * 1024 * 1024

/** Combines the events of one answer into its message. */
export function createMessageAssembler(): MessageAssembler {
  const pieces: Record<'text' | 'refusal' | 'reasoning', string[]> = { text: [], refusal: [], reasoning: [] }
  const calls: { id: string; name: string; pieces: string[] }[] = []
  const annotations: Annotation[] = []
  let characters = 0
  let wasCut = false

  function addOne(event: ChatEvent): void {
    if ('text' in event && (characters += event.text.length) > messageCharactersMax)
      throw new ServiceError(
        'upstream_error',
        `The answer is longer than ${messageCharactersMax} characters, the limit for buffered answers. Use stream: true.`,
      )
    if (event.type === 'tool-call') calls[event.index] = { id: event.id, name: event.name, pieces: [] }
    else if (event.type === 'tool-arguments') calls[event.index]?.pieces.push(event.text)
    else if (event.type === 'annotation' && annotations.length < annotationsMax) annotations.push(event.annotation)
    else if (event.type === 'finish') wasCut = event.reason === 'length' || event.reason === 'content_filter'
    else if ('text' in event) pieces[event.type].push(event.text)
  }

  return {
    add(events) {
      for (const event of events) addOne(event)
    },
    finish() {
      const whole = calls.map(({ id, name, pieces }) => ({ id, name, arguments: pieces.join('') }))
      return {
        text: pieces.text.join(''),
        refusal: pieces.refusal.join(''),
        reasoning: pieces.reasoning.join(''),
        // Indices may have gaps where a call of one of our own tools was left out.
        toolCalls: whole.filter((call) => !wasCut || isJson(call.arguments)),
        annotations,
      }
    },
  }
}

/**
 * The last call of a truncated answer may be incomplete. Executed as it is, it could do something that the model did not ask for.
 */
function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

export type CompletionParts = CompletionHead & {
  readonly message: AssembledMessage
  readonly finishReason: FinishReason
  readonly usage: Usage
  readonly cost: Cost
}

/** The body of a buffered answer. Empty lists are omitted: null or [] would break clients. */
export function completionBody({ id, created, model, message, finishReason, usage, cost }: CompletionParts): object {
  return {
    id,
    object: 'chat.completion',
    created,
    model,
    system_fingerprint: systemFingerprint,
    choices: [{ index: 0, message: messageBody(message), logprobs: null, finish_reason: finishReason }],
    usage: usageBody(usage, cost),
  }
}

function messageBody({ text, refusal, reasoning, toolCalls, annotations }: AssembledMessage): object {
  const saysElse = refusal !== '' || toolCalls.length > 0
  return {
    role: 'assistant',
    content: text === '' && saysElse ? null : text,
    refusal: refusal === '' ? null : refusal,
    ...(reasoning !== '' && { reasoning_content: reasoning, reasoning }),
    ...(toolCalls.length > 0 && {
      tool_calls: toolCalls.map(({ id, name, arguments: text }) => ({
        id,
        type: 'function',
        function: { name, arguments: text },
      })),
    }),
    ...(annotations.length > 0 && { annotations: annotations.map(citation) }),
  }
}
