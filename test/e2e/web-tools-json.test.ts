import assert from 'node:assert/strict'
import { beforeEach, test } from 'node:test'
import { allFrames, callChat, chunkOf, contentOf, endedRow, framesOf, readContent } from '../support/chat-client.ts'
import {
  answers,
  completed,
  created,
  failedEvent,
  functionCall,
  inTurn,
  reasoning,
  type Turn,
  text,
  type UpstreamExchange,
} from '../support/scripted-upstream.ts'
import { pennyResult, startScriptedWeb } from '../support/scripted-web.ts'
import { getRow, postChat, type RequestBody, type TestAccount } from '../support/service.ts'
import { serviceSuite } from '../support/suites.ts'

// A client that asks for JSON gets one document, however many rounds the model needed.

const searchPrice = 8_750

const web = startScriptedWeb()
const suite = serviceSuite({}, undefined, web.tools)
let account: TestAccount
beforeEach(async () => {
  web.forget()
  account = await suite.service.openAccount('25')
})

const messages = [{ role: 'user', content: 'What is a penny? See https://example.com/coins.' }]
const asJson = { response_format: { type: 'json_object' } }
const looking = '{"answer":"looking"}'
const coin = `{"answer":"A coin: ${pennyResult.url}"}`

test('a request for JSON gets one document: text before a search is billed but left out', async () => {
  const turns: Turn[] = [
    [created, text(looking), ...functionCall('web_search', { query: 'penny' }, 1)],
    [created, text(coin.slice(0, 9)), text(coin.slice(9))],
  ]
  suite.upstream.answer = inTurn(turns)
  const { body, row } = await ask(asJson)
  const { message } = body.choices[0]
  assert.equal(message.content, coin)
  const { start_index, end_index } = message.annotations![0]!.url_citation
  assert.equal(coin.slice(start_index, end_index), pennyResult.url)
  assert.equal(Number(row.charged_atomic), 2 * 35 + searchPrice)

  suite.upstream.answer = inTurn(turns)
  const frames = await allFrames(callChat(suite.service, account, { messages, ...asJson, stream: true }))
  assert.equal(frames.map(contentOf).join(''), coin)
  const streamed = await getRow(suite.service, account.apiKey, completionId(frames))
  assert.equal(Number(streamed.charged_atomic), 2 * 35 + searchPrice)

  suite.upstream.answer = inTurn(turns, {})
  const counted = await ask({ ...asJson, web_search: true })
  suite.upstream.answer = inTurn(turns, {})
  const asText = await ask({ web_search: true })
  assert.equal(counted.row.usage!.completion_tokens, asText.row.usage!.completion_tokens)
})

test('a stream of JSON comes as it is written where none of our tools may be called', async () => {
  for (const body of [{ web_search: false, web_fetch: false }, { tool_choice: 'none' }]) {
    const exchange = Promise.withResolvers<UpstreamExchange>()
    suite.upstream.answer = (each) => {
      each.send(created, text(looking))
      exchange.resolve(each)
    }
    const call = callChat(suite.service, account, { messages, ...asJson, ...body, stream: true })
    const frames = framesOf(await call.answer)
    assert.equal(await readContent(frames, looking.length), looking)
    const { send, end } = await exchange.promise
    send(completed())
    end()
    assert.equal((await Array.fromAsync(frames)).at(-1), 'data: [DONE]')
  }
})

test('a client that leaves while JSON is held back pays for what was written of it', async () => {
  const exchange = Promise.withResolvers<UpstreamExchange>()
  suite.upstream.answer = (each) => {
    each.send(created, reasoning('Hm.'), text('one two three'))
    exchange.resolve(each)
  }
  const call = callChat(suite.service, account, { messages, ...asJson, stream: true })
  for await (const frame of framesOf(await call.answer)) if (frame.includes('Hm.')) break
  // Its text came with the reasoning, and is not shown.
  call.leave()
  await (await exchange.promise).hungUp
  const row = await endedRow(suite.service, account)
  assert.deepEqual([row.status, row.usage?.completion_tokens, row.usage?.reasoning_tokens], ['cancelled', 5, 2])
})

test('JSON beside a call of the client’s is part of the answer', async () => {
  const tools = [{ type: 'function', function: { name: 'look_up' } }]
  suite.upstream.answer = inTurn([[created, text(looking), ...functionCall('look_up', {}, 1), text(' ')]])
  const { body } = await ask({ ...asJson, tools, web_search: true })
  const { message } = body.choices[0]
  assert.equal(message.content, `${looking} `)
  assert.equal(message.tool_calls!.length, 1)
})

test('JSON that was left out is not charged when the answer fails', async () => {
  suite.upstream.answer = inTurn([
    [created, text(looking), ...functionCall('web_search', { query: 'penny' }, 1)],
    (exchange) => {
      exchange.send(created, failedEvent())
      exchange.end()
    },
  ])
  const failed = await postChat(suite.service, account.apiKey, { messages, ...asJson })
  assert.match(await failed.text(), /"error":/)
  assert.equal((await getRow(suite.service, account.apiKey, failed)).charged_atomic, '0')
})

test('truncated JSON is sent and charged as far as it came', async () => {
  suite.upstream.answer = answers(created, text('{"answer":'), failedEvent())
  const answer = await postChat(suite.service, account.apiKey, { messages, ...asJson, stream: true })
  const frames = (await answer.text()).split('\n\n')
  assert.equal(frames.map(contentOf).join(''), '{"answer":')
  assert.match(frames.at(-2)!, /"error":/)
  assert.ok(Number((await getRow(suite.service, account.apiKey, answer)).charged_atomic) > 0)
})

type Completion = { readonly choices: [{ message: Message }] }
type Message = {
  readonly content: string | null
  readonly annotations?: { url_citation: { start_index: number; end_index: number } }[]
  readonly tool_calls?: object[]
}

/** The request behind a stream. */
function completionId(frames: readonly string[]): string {
  return chunkOf(frames[0]!)!.id.replace('chatcmpl-', 'req_')
}

async function ask(body: object): Promise<{ row: RequestBody; body: Completion }> {
  const answer = await postChat(suite.service, account.apiKey, { messages, ...body })
  assert.equal(answer.status, 200)
  return { body: (await answer.json()) as Completion, row: await getRow(suite.service, account.apiKey, answer) }
}
