import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateText, streamText } from 'ai'
import { testAiSdk } from './ai-sdk.ts'
import { clientSuite, model } from './client-suite.ts'
import { question } from './conversations.ts'

const suite = clientSuite()

function modelOf(apiKey: string, id: string) {
  const { baseUrl: baseURL } = suite
  // The provider takes nothing for granted: what the service can do has to be said to it.
  return createOpenAICompatible({
    name: 'penny',
    baseURL,
    apiKey,
    includeUsage: true,
    supportsStructuredOutputs: true,
  })(id)
}

testAiSdk(suite, modelOf)

test('reasoning is shown, the same buffered and streamed, and may come back in the history', async () => {
  const options = { model: modelOf((await suite.openAccount()).apiKey, model) }
  const buffered = await generateText({ ...options, prompt: question })
  const streamed = streamText({ ...options, prompt: question })
  assert.match(buffered.reasoningText!, /I think/)
  assert.equal(await streamed.reasoningText, buffered.reasoningText)

  const messages = [...buffered.responseMessages, { role: 'user' as const, content: 'And a cent?' }]
  const second = await generateText({ ...options, messages: [{ role: 'user', content: question }, ...messages] })
  assert.equal(second.finishReason, 'stop')
  const [, assistant] = suite.exchanges.at(-1)!.requestBody.messages as { reasoning_content?: string }[]
  assert.equal(assistant!.reasoning_content, buffered.reasoningText)
})
