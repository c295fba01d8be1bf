import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { ChatOpenAICompletions } from '@langchain/openai'
import { Agent, OpenAIProvider, Runner } from '@openai/agents'
import { generateText, type LanguageModel, streamText } from 'ai'
import OpenAI from 'openai'
import { clientSuite, model } from './client-suite.ts'
import { thinkLong, user } from './conversations.ts'
import { readEventStream } from './wire.ts'

// A service that treats a hundredth of a second as a long silence: every client must cope with its keepalives.
const suite = clientSuite({ STREAM_KEEPALIVE_MS: '10', KEEPALIVE_AFTER_MS: '10' })

/** The text of the same answer, buffered and then streamed. */
type Ask = (baseURL: string, apiKey: string) => Promise<readonly [buffered: string, streamed: string]>

const clients: Readonly<Record<string, Ask>> = {
  openai: async (baseURL, apiKey) => {
    const { completions } = new OpenAI({ baseURL, apiKey }).chat
    const body = { model, messages: [user(thinkLong)] }
    const buffered = await completions.create(body)
    return [buffered.choices[0]!.message.content!, (await completions.stream(body).finalContent())!]
  },
  '@ai-sdk/openai': (baseURL, apiKey) => askAiSdk(createOpenAI({ baseURL, apiKey }).chat(model)),
  '@ai-sdk/openai-compatible': (baseURL, apiKey) =>
    askAiSdk(createOpenAICompatible({ name: 'penny', baseURL, apiKey })(model)),
  '@langchain/openai': async (baseURL, apiKey) => {
    const chat = new ChatOpenAICompletions({ model, apiKey, configuration: { baseURL } })
    const buffered = await chat.invoke(thinkLong)
    const chunks = await Array.fromAsync(await chat.stream(thinkLong))
    return [buffered.text, chunks.map((chunk) => chunk.text).join('')]
  },
  '@openai/agents': async (baseURL, apiKey) => {
    const modelProvider = new OpenAIProvider({ baseURL, apiKey, useResponses: false })
    const runner = new Runner({ modelProvider, tracingDisabled: true })
    const agent = new Agent({ name: 'Penny', model })
    const buffered = await runner.run(agent, thinkLong)
    const streamed = await runner.run(agent, thinkLong, { stream: true })
    await streamed.completed
    return [buffered.finalOutput!, streamed.finalOutput!]
  },
}

async function askAiSdk(languageModel: LanguageModel): Promise<readonly [string, string]> {
  const options = { model: languageModel, prompt: thinkLong }
  return [(await generateText(options)).text, await streamText(options).text]
}

for (const [name, ask] of Object.entries(clients)) {
  test(`${name} does not notice how a long silence is bridged, buffered or streamed`, async () => {
    const { apiKey } = await suite.openAccount()
    const [text, streamedText] = await ask(suite.baseUrl, apiKey)
    assert.match(text, /sandbox model/)
    assert.equal(streamedText, text)
    const [buffered, streamed] = suite.exchanges
    assert.match(buffered!.text, /^ +\{/)
    assert.ok(!('x-router-charged-usdc' in buffered!.headers), 'the headers had left before the charge was known')
    assert.ok(readEventStream(streamed!.text).commentCount > 0)
  })
}
