import { randomBytes } from 'node:crypto'
import type { ServerEvent } from './events.ts'
import { type Fields, isFields, type ModelRequest, parseCreateRequest, RequestError } from './request.ts'

// The sandbox model behind `POST /v1/chat/completions`, as vLLM, Ollama and others serve it: the same answers in the other
// protocol.

const parameters = new Set(
  `frequency_penalty max_completion_tokens max_tokens messages model parallel_tool_calls presence_penalty prompt_cache_key
  reasoning_effort response_format seed stop stream stream_options temperature tool_choice tools top_p user`.split(
    /\s+/,
  ),
)

/** Parses the body of a request. Only streamed answers are supported. */
export function parseChatRequest(body: unknown): ModelRequest {
  if (!isFields(body)) throw new RequestError('We could not parse the JSON body of your request.')
  const unknown = Object.keys(body).find((name) => !parameters.has(name))
  if (unknown !== undefined) throw new RequestError(`Unrecognized request argument supplied: ${unknown}`)
  if (body.stream !== true)
    throw new RequestError('The sandbox model only streams chat completions.', { param: 'stream' })
  return { ...parseCreateRequest(toResponsesBody(body)), body }
}

function toResponsesBody({ messages, model, reasoning_effort, ...body }: Fields): Fields {
  const maxTokens = body.max_completion_tokens ?? body.max_tokens
  return {
    model,
    input: Array.isArray(messages) ? messages.flatMap(inputItems) : messages,
    stream: true,
    reasoning: { effort: reasoning_effort ?? 'medium', summary: 'auto' },
    text: { format: textFormat(body.response_format) },
    ...(maxTokens !== undefined && { max_output_tokens: maxTokens }),
    ...(Array.isArray(body.tools) && { tools: body.tools.map(flattened) }),
    ...(body.tool_choice !== undefined && { tool_choice: flattened(body.tool_choice) }),
    ...(body.parallel_tool_calls !== undefined && { parallel_tool_calls: body.parallel_tool_calls }),
    ...(body.prompt_cache_key !== undefined && { prompt_cache_key: body.prompt_cache_key }),
  }
}

function inputItems(message: unknown): readonly unknown[] {
  if (!isFields(message)) return [message]
  const { role, content, tool_calls: calls, tool_call_id: callId } = message
  if (role === 'tool') return [{ type: 'function_call_output', call_id: callId, output: parts(content, 'input_text') }]
  if (role !== 'assistant') return [{ role, content: parts(content, 'input_text') }]
  const said =
    content === null || content === undefined || content === ''
      ? []
      : [{ role, content: parts(content, 'output_text') }]
  return [...said, ...(Array.isArray(calls) ? calls.map((call) => functionCall(call)) : [])]
}

function functionCall(call: unknown): unknown {
  if (!isFields(call) || !isFields(call.function)) return call
  return { type: 'function_call', call_id: call.id, name: call.function.name, arguments: call.function.arguments }
}

function parts(content: unknown, type: string): unknown {
  return Array.isArray(content)
    ? content.map((part) => (isFields(part) && part.type === 'text' ? { ...part, type } : part))
    : content
}

/** Removes the `function` level of `{ type, function: { … } }`. */
function flattened(value: unknown): unknown {
  return isFields(value) && isFields(value.function) ? { type: value.type, ...value.function } : value
}

function textFormat(format: unknown): unknown {
  if (!isFields(format)) return { type: 'text' }
  return isFields(format.json_schema) ? { type: format.type, ...format.json_schema } : format
}

/** Renders an answer's events as chunks of a chat completion. Create one writer per answer. */
export function chunkWriter({ model, body }: ModelRequest): (event: ServerEvent) => string {
  const head = {
    id: `chatcmpl-${randomBytes(12).toString('hex')}`,
    object: 'chat.completion.chunk',
    created: Math.floor(Date.now() / 1000),
    model,
  }
  const withUsage = isFields(body.stream_options) && body.stream_options.include_usage === true
  let calls = 0
  const data = (content: object) => `data: ${JSON.stringify(content)}\n\n`
  const chunk = (delta: Fields, reason: string | null = null) =>
    data({ ...head, choices: [{ index: 0, delta, logprobs: null, finish_reason: reason }] })
  const finish = ({ response }: ServerEvent, reason: string) => {
    const usage = isFields(response) ? response.usage : undefined
    const last = withUsage && usage !== null ? data({ ...head, choices: [], usage: chatUsage(usage) }) : ''
    return `${chunk({}, reason)}${last}data: [DONE]\n\n`
  }
  return (event) => {
    switch (event.type) {
      case 'response.created':
        return chunk({ role: 'assistant', content: '' })
      case 'response.output_text.delta':
        return chunk({ content: event.delta })
      case 'response.refusal.delta':
        return chunk({ refusal: event.delta })
      case 'response.reasoning_summary_text.delta':
      case 'response.reasoning_text.delta':
        return chunk({ reasoning_content: event.delta })
      case 'response.output_item.added': {
        const item = event.item as Fields
        if (item.type !== 'function_call') return ''
        calls += 1
        const call = {
          index: calls - 1,
          id: item.call_id,
          type: 'function',
          function: { name: item.name, arguments: '' },
        }
        return chunk({ tool_calls: [call] })
      }
      case 'response.function_call_arguments.delta':
        return chunk({ tool_calls: [{ index: calls - 1, function: { arguments: event.delta } }] })
      case 'response.output_text.annotation.added': {
        const { type, ...citation } = event.annotation as Fields
        return chunk({ annotations: [{ type, url_citation: citation }] })
      }
      case 'response.completed':
        return finish(event, calls > 0 ? 'tool_calls' : 'stop')
      case 'response.incomplete':
        return finish(event, isFiltered(event) ? 'content_filter' : 'length')
      case 'response.failed':
      case 'error':
        return data({
          error: { message: 'The sandbox model was asked to fail here.', type: 'server_error', code: 500 },
        })
      default:
        return ''
    }
  }
}

function isFiltered({ response }: ServerEvent): boolean {
  const details = isFields(response) ? response.incomplete_details : undefined
  return isFields(details) && details.reason === 'content_filter'
}

/** The same numbers under this protocol's names. A scripted usage may be any value. */
function chatUsage(usage: unknown): unknown {
  if (!isFields(usage)) return usage
  const { input_tokens, output_tokens, total_tokens, input_tokens_details, output_tokens_details } = usage
  return {
    prompt_tokens: input_tokens,
    completion_tokens: output_tokens,
    total_tokens,
    prompt_tokens_details: input_tokens_details,
    completion_tokens_details: output_tokens_details,
  }
}
