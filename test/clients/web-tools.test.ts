import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { ChatOpenAICompletions } from '@langchain/openai'
import { generateText, type LanguageModel, streamText } from 'ai'
import OpenAI from 'openai'
import { centResult, pennyResult, startScriptedWeb } from '../support/scripted-web.ts'
import { costOfLines, type TestAccount } from '../support/service.ts'
import { clientSuite, model } from './client-suite.ts'
import { user } from './conversations.ts'

// A question that the service searches and reads the web for. No client knows of that: each must read the answer as any other.

const suite = clientSuite({}, startScriptedWeb().tools)

const prompt = 'Search the web for the history of the penny.'
const asked = { model, messages: [user(prompt)] }
const citedUrls = [pennyResult.url, centResult.url]

type Cited = { annotations?: { type: string; url_citation: { url: string } }[] }

const urlsOf = ({ annotations = [] }: Cited) => annotations.map(({ url_citation }) => url_citation.url)

test('openai: text, citations and usage are the same buffered and streamed, and the row adds up', async () => {
  const account = await suite.openAccount()
  const client = new OpenAI({ baseURL: suite.baseUrl, apiKey: account.apiKey })
  const buffered = await client.chat.completions.create(asked)
  const message = buffered.choices[0]!.message
  assert.deepEqual(urlsOf(message as Cited), citedUrls)

  const seen = { text: '', urls: [] as string[], activities: 0, usage: undefined as OpenAI.CompletionUsage | undefined }
  const stream = await client.chat.completions.create({
    ...asked,
    stream: true,
    stream_options: { include_usage: true },
  })
  for await (const chunk of stream) {
    const delta = chunk.choices[0]?.delta
    seen.text += delta?.content ?? ''
    seen.urls.push(...urlsOf((delta ?? {}) as Cited))
    if ('tool_activity' in chunk) seen.activities += 1
    seen.usage = chunk.usage ?? seen.usage
  }
  assert.deepEqual([seen.text, seen.urls, seen.activities], [message.content, citedUrls, 4])
  assert.equal(seen.usage?.completion_tokens, buffered.usage?.completion_tokens)
  await assertRows(account, 2)
})

test('openai: the stream helper puts the same message together, and nothing of the tools is left in it', async () => {
  const { apiKey } = await suite.openAccount()
  const client = new OpenAI({ baseURL: suite.baseUrl, apiKey })
  const buffered = (await client.chat.completions.create(asked)).choices[0]!
  const streamed = (await client.chat.completions.stream(asked).finalChatCompletion()).choices[0]!
  assert.deepEqual([streamed.message.content, streamed.finish_reason], [buffered.message.content, 'stop'])
  assert.deepEqual([streamed.message.tool_calls ?? [], buffered.message.tool_calls ?? []], [[], []])
  // Clients send back what they were given.
  const messages = [...asked.messages, streamed.message, user('Thank you.')]
  assert.equal((await client.chat.completions.create({ model, messages })).choices[0]!.finish_reason, 'stop')
})

const providers: readonly (readonly [name: string, of: (apiKey: string) => LanguageModel])[] = [
  ['@ai-sdk/openai', (apiKey) => createOpenAI({ baseURL: suite.baseUrl, apiKey }).chat(model)],
  [
    '@ai-sdk/openai-compatible',
    (apiKey) => createOpenAICompatible({ name: 'penny', baseURL: suite.baseUrl, apiKey, includeUsage: true })(model),
  ],
]

for (const [name, of] of providers) {
  test(`${name}: the answer is the same buffered and streamed, in one step and without a call of the client’s`, async () => {
    const account = await suite.openAccount()
    const options = { model: of(account.apiKey), prompt }
    const buffered = await generateText(options)
    const errors: unknown[] = []
    const streamed = streamText({ ...options, onError: ({ error }) => void errors.push(error) })
    assert.equal(await streamed.text, buffered.text)
    assert.deepEqual([await streamed.finishReason, buffered.finishReason], ['stop', 'stop'])
    assert.deepEqual([(await streamed.steps).length, (await streamed.toolCalls).length, errors], [1, 0, []])
    assert.equal((await streamed.usage).outputTokens, buffered.usage.outputTokens)
    await assertRows(account, 2)
  })
}

test('@ai-sdk/openai: the pages are sources', async () => {
  const { apiKey } = await suite.openAccount()
  const options = { model: createOpenAI({ baseURL: suite.baseUrl, apiKey }).chat(model), prompt }
  for (const sources of [(await generateText(options)).sources, await streamText(options).sources]) {
    assert.deepEqual(
      sources.map((source) => source.sourceType === 'url' && source.url),
      citedUrls,
    )
  }
})

test('langchain: the answer is the same buffered and streamed', async () => {
  const { apiKey } = await suite.openAccount()
  const chat = new ChatOpenAICompletions({ model, apiKey, configuration: { baseURL: suite.baseUrl } })
  const buffered = await chat.invoke(prompt)
  const chunks = await Array.fromAsync(await chat.stream(prompt))
  assert.equal(chunks.map((chunk) => chunk.text).join(''), buffered.text)
  assert.ok(chunks.some((chunk) => chunk.usage_metadata !== undefined))
})

async function assertRows(account: TestAccount, count: number): Promise<void> {
  const answers = suite.exchanges.slice(-count)
  for (const { headers } of answers) {
    const row = await suite.ended(account, headers['x-router-request-id']!)
    assert.deepEqual([row.status, row.cost.search_calls, row.cost.fetch_calls], ['succeeded', 1, 1])
    assert.equal(BigInt(row.charged_atomic), costOfLines(row))
    assert.equal(row.cost.search_atomic, '8750')
  }
}
