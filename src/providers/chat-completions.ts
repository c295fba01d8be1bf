import type { ChatParameter } from '../inference/chat-parameters.ts'
import { createChatCompletionsReader } from './chat-completions-events.ts'
import { toChatCompletionsRequest } from './chat-completions-request.ts'
import type { Protocol } from './protocol.ts'

/** The chat-completions protocol of vLLM, Ollama, LM Studio, llama.cpp, Mistral, DeepSeek, OpenRouter or another Penny Router. */
export const chatCompletions: Protocol = {
  path: '/chat/completions',
  write: (request, model, provider) => JSON.stringify(toChatCompletionsRequest(request, model, provider)),
  createReader: createChatCompletionsReader,
  // The customer uses the same protocol. Indices inside a parameter may differ, so they are left out.
  chatParam: (param) => {
    const name = param?.split(/[.[]/, 1)[0]
    return name !== undefined && sharedParams.has(name) ? name : undefined
  },
}

const sharedParams: ReadonlySet<string> = new Set<ChatParameter>([
  'messages',
  'response_format',
  'reasoning_effort',
  'max_tokens',
  'tools',
  'tool_choice',
  'parallel_tool_calls',
  'temperature',
  'prompt_cache_key',
])
