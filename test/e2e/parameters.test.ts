import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import {
  answers,
  completed,
  created,
  type ScriptedUpstream,
  startScriptedUpstream,
  text,
} from '../support/scripted-upstream.ts'
import { postChat, startTestService, type TestService, withoutTools } from '../support/service.ts'

// What a parameter becomes upstream, as seen by the upstream.

let upstream: ScriptedUpstream
let service: TestService
before(async () => {
  upstream = await startScriptedUpstream(answers(created, text('Hi'), completed()))
  service = await startTestService({ upstreamUrl: upstream.url })
})
after(async () => {
  await service.stop()
  await upstream.close()
})

const hello = { messages: [{ role: 'user', content: 'Hello' }], ...withoutTools }

/** The upstream's request for a body, and the id under which the customer finds it. */
async function sent(apiKey: string, body: object): Promise<{ body: Record<string, unknown>; requestId: string }> {
  const answer = await postChat(service, apiKey, { ...hello, ...body })
  assert.equal(answer.status, 200, await answer.text())
  return { body: upstream.exchanges.at(-1)!.body, requestId: answer.headers.get('x-router-request-id')! }
}

// `cached_tokens` is reported back: with one cache for all, a customer could probe for the prompts of another.
test('accounts that choose the same prompt_cache_key do not share a cache', async () => {
  const [one, other] = [await service.openAccount('25'), await service.openAccount('25')]
  const keyOf = async (apiKey: string, prompt_cache_key: string): Promise<string> =>
    String((await sent(apiKey, { prompt_cache_key })).body.prompt_cache_key)
  const key = await keyOf(one.apiKey, 'chat-7')
  assert.equal(await keyOf(one.apiKey, 'chat-7'), key, 'requests of one account do')
  assert.notEqual(await keyOf(other.apiKey, 'chat-7'), key)
  assert.notEqual(await keyOf(one.apiKey, 'chat-8'), key)
  const long = await keyOf(one.apiKey, 'k'.repeat(200))
  assert.equal(await keyOf(one.apiKey, 'k'.repeat(128)), long, 'cut to 128 characters')
  assert.notEqual(await keyOf(one.apiKey, 'k'.repeat(127)), long)
  for (const sentKey of [key, long]) assert.ok(sentKey.length <= 128)
})

test('without a prompt_cache_key the request’s own id is sent', async () => {
  const { apiKey } = await service.openAccount('25')
  for (const absent of [{}, { prompt_cache_key: null }, { prompt_cache_key: '' }]) {
    const { body, requestId } = await sent(apiKey, absent)
    assert.equal(body.prompt_cache_key, requestId)
  }
})

test('parallel_tool_calls goes upstream when set, also where no tool is offered', async () => {
  const { apiKey } = await service.openAccount('25')
  assert.equal((await sent(apiKey, { parallel_tool_calls: true })).body.parallel_tool_calls, true)
  assert.equal((await sent(apiKey, { parallel_tool_calls: false })).body.parallel_tool_calls, false)
  assert.equal('parallel_tool_calls' in (await sent(apiKey, {})).body, false)
})

test('OpenRouter’s reasoning.effort is the reasoning effort', async () => {
  const { apiKey } = await service.openAccount('25')
  const { body } = await sent(apiKey, { reasoning: { effort: 'high' } })
  assert.deepEqual(body.reasoning, { effort: 'high', summary: 'auto' })
})
