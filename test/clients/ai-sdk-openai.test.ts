import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createOpenAI } from '@ai-sdk/openai'
import { generateText, streamText } from 'ai'
import { testAiSdk } from './ai-sdk.ts'
import { clientSuite, model } from './client-suite.ts'
import { cite, citedUrls } from './conversations.ts'

const suite = clientSuite()

function modelOf(apiKey: string, id: string) {
  const { baseUrl: baseURL } = suite
  return createOpenAI({ baseURL, apiKey }).chat(id)
}

testAiSdk(suite, modelOf)

test('citations are sources, buffered and streamed', async () => {
  const options = { model: modelOf((await suite.openAccount()).apiKey, model), prompt: cite }
  const found = [(await generateText(options)).sources, await streamText(options).sources]
  for (const sources of found) {
    assert.deepEqual(
      sources.map((source) => source.sourceType === 'url' && source.url),
      citedUrls,
    )
  }
})
