import { createChatCompletionsReader } from './chat-completions-events.ts'
import { toChatCompletionsRequest } from './chat-completions-request.ts'
import type { Protocol } from './protocol.ts'

/** The chat-completions protocol of vLLM, Ollama, LM Studio, llama.cpp, Mistral, DeepSeek, OpenRouter or another Penny Router. */
export const chatCompletions: Protocol = {
  path: '/chat/completions',
  write: (request, model, provider) => JSON.stringify(toChatCompletionsRequest(request, model, provider)),
  sealsReasoning: false,
  createReader: createChatCompletionsReader,
  // The customer uses the same protocol.
  renamed: new Map(),
}
