import type { ChatParameter } from '../inference/chat-parameters.ts'
import type { Protocol } from './protocol.ts'
import { createResponsesReader } from './responses-events.ts'
import { toResponsesRequest } from './responses-request.ts'

/** OpenAI's Responses API, with nothing stored at the provider. */
export const responses: Protocol = {
  path: '/responses',
  write: (request, model, provider) => JSON.stringify(toResponsesRequest(request, model, provider)),
  createReader: createResponsesReader,
  // Indices inside a parameter may differ, so they are left out.
  chatParam: (param) => {
    const name = param?.split(/[.[]/, 1)[0]
    return chatNames.find(([upstream]) => upstream === name)?.[1]
  },
}

// The upstream's name of a parameter, and the customer's.
const chatNames: readonly (readonly [upstream: string, chat: ChatParameter])[] = [
  ['input', 'messages'],
  ['instructions', 'messages'],
  ['text', 'response_format'],
  ['reasoning', 'reasoning_effort'],
  ['max_output_tokens', 'max_tokens'],
  ['tools', 'tools'],
  ['tool_choice', 'tool_choice'],
  ['parallel_tool_calls', 'parallel_tool_calls'],
  ['temperature', 'temperature'],
  ['prompt_cache_key', 'prompt_cache_key'],
]
