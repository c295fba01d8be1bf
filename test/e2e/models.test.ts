import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { startScriptedWeb } from '../support/scripted-web.ts'
import { startTestService, type TestService } from '../support/service.ts'

let service: TestService
let searching: TestService
before(async () => {
  service = await startTestService()
  searching = await startTestService({ web: startScriptedWeb().tools })
})
after(async () => {
  await service.stop()
  await searching.stop()
})

type ListedModel = {
  readonly id: string
  readonly max_output_tokens: number
  readonly max_tokens: number
  readonly tags: readonly string[]
  readonly pricing: { readonly web_search?: string; readonly web_fetch: string }
  readonly top_provider: { readonly max_completion_tokens: number }
  readonly per_request_limits: { readonly prompt_tokens: number; readonly completion_tokens: number }
}

async function listModels({ baseUrl }: TestService): Promise<readonly ListedModel[]> {
  const answer = await fetch(`${baseUrl}/models`)
  return ((await answer.json()) as { data: ListedModel[] }).data
}

/** Why a request would be refused; null when it would be admitted. */
async function refusalOf({ baseUrl }: TestService, apiKey: string, body: object): Promise<unknown> {
  const answer = await fetch(`${baseUrl}/quote`, {
    method: 'POST',
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  const quote = (await answer.json()) as { refusal?: unknown; error?: unknown }
  return quote.error ?? quote.refusal
}

const short = [{ role: 'user', content: 'What is a penny? Answer in one sentence, and do not search the web.' }]

test('what the model list gives as the limits of a request is really admitted', async () => {
  const { apiKey } = await searching.openAccount('25')
  for (const { id, per_request_limits, ...model } of await listModels(searching)) {
    const { prompt_tokens, completion_tokens } = per_request_limits
    assert.equal(model.top_provider.max_completion_tokens, completion_tokens)
    assert.equal(model.max_tokens, completion_tokens)
    // With our tools offered, as they are by default.
    assert.equal(
      await refusalOf(searching, apiKey, { model: id, messages: short, max_tokens: completion_tokens }),
      null,
      id,
    )
    // One word is one token, and so is every further one.
    const long = [{ role: 'user', content: `a${' a'.repeat(prompt_tokens - 1)}` }]
    assert.equal(await refusalOf(searching, apiKey, { model: id, messages: long }), null, id)
  }
})

test('the limits are close to what the cap allows, and the model’s own maximum stays the specification’s', async () => {
  const [astra, terra] = await listModels(service)
  assert.deepEqual([astra!.id, astra!.max_output_tokens], ['gpt-6-astra', 128_000])
  assert.deepEqual(astra!.per_request_limits, { prompt_tokens: 143_672, completion_tokens: 39_800 })
  assert.deepEqual([terra!.max_output_tokens, terra!.per_request_limits.completion_tokens], [64_000, 64_000])
})

test('tools have a price and a tag in the model list only where they are configured', async () => {
  for (const { pricing, tags } of await listModels(searching)) {
    assert.deepEqual([pricing.web_search, pricing.web_fetch, tags.includes('web-search')], ['0.00875', '0', true])
  }
  for (const { pricing, tags } of await listModels(service)) {
    assert.deepEqual(['web_search' in pricing, pricing.web_fetch, tags.includes('web-search')], [false, '0', false])
  }
})
