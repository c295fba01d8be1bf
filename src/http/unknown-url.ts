import { ServiceError } from '../errors.ts'
import { chatContracts } from '../openapi/contracts/chat.ts'

export class UnknownUrlError extends ServiceError {
  constructor(method: string, path: string) {
    super(
      'unknown_url',
      notOffered.has(path)
        ? `${path} is not supported. Send chat completions to ${chatContracts.createChatCompletion.path}.${path === '/v1/responses' ? clientHint : ''}`
        : `${method} ${path.slice(0, 200)} does not exist. The base URL ends in /v1; chat completions are at ${chatContracts.createChatCompletion.path}.`,
    )
  }
}

// Some libraries use the Responses API by default or depending on the model's name.
const clientHint =
  " LangChain: use ChatOpenAICompletions; AI SDK: openai.chat(model); Agents SDK: setOpenAIAPI('chat_completions');" +
  ' OpenRouter SDK: client.chat.send. Other clients: /docs/guides/quickstart.'

const notOffered = new Set(['/v1/embeddings', '/v1/completions', '/v1/responses'])
