import assert from 'node:assert/strict'
import { test } from 'node:test'
import { OpenRouter } from '@openrouter/sdk'
import { clientSuite, model } from './client-suite.ts'
import { callWeather, question, user, weatherDescription } from './conversations.ts'

// This SDK checks every answer against OpenRouter's own schema and throws away, after it was charged, what does not match.

const suite = clientSuite()

async function openClient(): Promise<OpenRouter> {
  const { apiKey } = await suite.openAccount()
  return new OpenRouter({ apiKey, serverURL: suite.baseUrl })
}

const asked = { model, messages: [user(question)] }
type ChatRequest = Parameters<OpenRouter['chat']['send']>[0]['chatRequest']

async function buffered(client: OpenRouter, chatRequest: ChatRequest) {
  const answer = await client.chat.send({ chatRequest: { ...chatRequest, stream: false } })
  assert.ok('choices' in answer)
  return answer
}

async function streamed(client: OpenRouter, chatRequest: ChatRequest) {
  const answer = await client.chat.send({ chatRequest: { ...chatRequest, stream: true } })
  assert.ok(Symbol.asyncIterator in answer)
  return Array.fromAsync(answer)
}

test('text, usage and cost are the same buffered and streamed', async () => {
  const client = await openClient()
  const answer = await buffered(client, asked)
  assert.match(String(answer.choices[0]!.message.content), /sandbox model/)
  const { usage } = answer
  const { costDetails } = usage!
  assert.ok(costDetails!.upstreamInferencePromptCost > 0)
  assert.ok(costDetails!.upstreamInferenceCompletionsCost > 0)
  const charged = Number(suite.exchanges[0]!.headers['x-router-charged-usdc'])
  const parts = costDetails!.upstreamInferencePromptCost + costDetails!.upstreamInferenceCompletionsCost
  assert.deepEqual([Math.round(usage!.cost! * 1e6), Math.round(parts * 1e6)], [charged, charged])

  const chunks = await streamed(client, { ...asked, streamOptions: { includeUsage: true } })
  const text = chunks.map(({ choices }) => choices[0]?.delta.content ?? '').join('')
  assert.equal(text, answer.choices[0]!.message.content)
  assert.deepEqual(chunks.at(-1)!.usage, usage)
})

test('without usage a stream is read to its end, too', async () => {
  const chunks = await streamed(await openClient(), asked)
  assert.equal(chunks.at(-1)!.choices[0]!.finishReason, 'stop')
})

test('its reasoning effort reaches the model', async () => {
  const client = await openClient()
  const tokensAt = async (effort: 'none' | 'high') => {
    const { usage } = await buffered(client, { ...asked, reasoning: { effort } })
    return usage!.completionTokensDetails!.reasoningTokens
  }
  assert.equal(await tokensAt('none'), 0)
  assert.ok((await tokensAt('high'))! > 0)
})

test('a tool is called, buffered and streamed', async () => {
  const client = await openClient()
  const parameters = { type: 'object', properties: { city: { type: 'string' } } }
  const tools = [
    { type: 'function' as const, function: { name: 'get_weather', description: weatherDescription, parameters } },
  ]
  const body = { model, messages: [user(callWeather)], tools }
  const answer = await buffered(client, body)
  const [call] = answer.choices[0]!.message.toolCalls!
  assert.deepEqual([call!.function.name, JSON.parse(call!.function.arguments)], ['get_weather', { city: 'Paris' }])
  const pieces = (await streamed(client, body)).flatMap(({ choices }) => choices[0]?.delta.toolCalls ?? [])
  assert.equal(pieces.map((piece) => piece.function?.arguments ?? '').join(''), call!.function.arguments)
})

test('the model list can be read', async () => {
  const { apiKey } = await suite.openAccount()
  const client = new OpenRouter({ apiKey, serverURL: suite.baseUrl })
  const pages = await Array.fromAsync(await client.models.list())
  assert.deepEqual(
    pages.map(({ result }) => result.data.length),
    [5],
  )
})
