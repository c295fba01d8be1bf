import type { Protocol } from './protocol.ts'
import { createResponsesReader } from './responses-events.ts'
import { toResponsesRequest } from './responses-request.ts'

/** OpenAI's Responses API, with nothing stored at the provider. */
export const responses: Protocol = {
  path: '/responses',
  write: (request, model, provider) => JSON.stringify(toResponsesRequest(request, model, provider)),
  sealsReasoning: true,
  createReader: createResponsesReader,
  renamed: new Map([
    ['input', 'messages'],
    ['instructions', 'messages'],
    ['text', 'response_format'],
    ['reasoning', 'reasoning_effort'],
    ['max_output_tokens', 'max_tokens'],
  ]),
}
