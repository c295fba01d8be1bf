import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import {
  type ScriptedUpstream,
  startScriptedUpstream,
  type UpstreamExchange,
} from '../../test/support/scripted-upstream.ts'
import { Bill } from '../billing/bill.ts'
import { type ChargingParts, chargeFor } from '../billing/charge.ts'
import { HiddenReasoning } from '../billing/hidden-reasoning.ts'
import { quote } from '../billing/quote.ts'
import { UpstreamUse } from '../billing/upstream-use.ts'
import type { ChatEvent } from '../inference/chat-events.ts'
import { createRequestId } from '../ledger/request-id.ts'
import { RequestWatch } from '../observe/request-watch.ts'
import { inputOf, toModelRequest } from '../providers/model-request.ts'
import { Router } from '../providers/router.ts'
import { answerInRounds, Leaving, type LoopParts, type Serving } from './tool-loop.ts'
import { toolDefinitions } from './tool-offer.ts'

// One request to a server of the chat-completions protocol that its client leaves. Input costs 1 atomic unit a token, output 5; the
// provider charges half of that.

const accountId = 'account'
const model = {
  id: 'm',
  contextLength: 400_000,
  maxOutputTokens: 64_000,
  inputPerMillion: 1_000_000n,
  outputPerMillion: 5_000_000n,
}
const rates = { inputPerMillion: 500_000n, cachedInputPerMillion: 500_000n, outputPerMillion: 2_500_000n }
/** Counted as four tokens, and framed with six. */
const input = { texts: ['What is a penny?'], itemCount: 1 }
const inputTokens = 10

const head: ScriptedUpstream['answer'] = ({ outgoing }) => {
  outgoing.writeHead(200, { 'content-type': 'text/event-stream' })
  outgoing.flushHeaders()
}

async function routerTo(t: TestContext, answer: ScriptedUpstream['answer']): Promise<Router> {
  const upstream = await startScriptedUpstream(answer)
  const provider = {
    id: 'one',
    protocol: 'chat-completions' as const,
    baseUrl: upstream.url,
    apiKey: undefined,
    headers: {},
    timeouts: { connectMs: 60_000, firstByteMs: 60_000, idleMs: 60_000, totalMs: 60_000 },
    slowMs: undefined,
    concurrencyMax: 10,
    concurrencyPerAccountMin: 10,
  }
  const route = { provider: 'one', model: 'm', priority: 0, weight: 1, rates }
  const router = new Router({
    table: { providers: [provider], routes: new Map([['m', [route]]]), deadlineMs: 60_000 },
    clock: { now: () => performance.now(), schedule: () => () => {} },
    onFailure() {},
  })
  atEnd(t, async () => {
    await router.close()
    await upstream.close()
  })
  return router
}

/** The end of a request whose client leaves once `isEnough` says so of the events, or at the upstream's head. */
async function leave(router: Router, parts: ChargingParts, isEnough?: (event: ChatEvent) => boolean) {
  const client = new AbortController()
  const bill = new Bill({ model, quote: quote(model, 20, 1_000), searchPerCall: 0n, input }, () => 0)
  const upstream = new UpstreamUse()
  const request = {
    instructions: '',
    messages: [{ role: 'user' as const, content: 'What is a penny?' }],
    turns: [],
    tools: [],
    toolChoice: 'auto' as const,
    parallelToolCalls: undefined,
    responseFormat: { type: 'text' as const },
    reasoningEffort: 'low' as const,
    temperature: undefined,
    maxOutputTokens: 1_000,
    promptCacheKey: 'key',
  }
  const admitted = {
    request,
    input,
    sharesOf: accountId,
    offer: new Set<string>(),
    model,
    chat: { maxTokens: 1_000 },
    watch: new RequestWatch(() => 0, undefined),
  } as unknown as Serving['admitted']
  const asked: Pick<Router, 'ask'> = {
    async ask(question) {
      const answer = await router.ask(question)
      if (isEnough === undefined) client.abort()
      return answer
    },
  }
  const loop = { router: asked, charging: parts, counting: parts, failpoint() {} } as unknown as LoopParts
  const leaving = new Leaving(bill, parts.hiddenReasoning)
  client.signal.addEventListener('abort', () => leaving.left(client.signal.reason, new Promise(() => {})))
  const events = answerInRounds({
    parts: loop,
    admitted,
    bill,
    upstream,
    clientSignal: client.signal,
    waitForClient: () => undefined,
    leaving,
  })
  await assert.rejects(
    async () => {
      for await (const some of events) if (isEnough !== undefined && some.some(isEnough)) client.abort()
    },
    { name: 'AbortError' },
  )
  const hold = { payer: { accountId } } as Parameters<typeof chargeFor>[0]['hold']
  const outcome = { status: 'cancelled' } as const
  return chargeFor({ hold, stream: true, outcome, bill, usage: undefined, isWhole: false, upstream }, parts)
}

function chargingParts(): ChargingParts {
  return {
    countTokens: async (texts) =>
      texts
        .join(' ')
        .split(' ')
        .filter((word) => word !== '').length,
    hiddenReasoning: new HiddenReasoning(),
    onUncounted: (error) => assert.fail(String(error)),
    onRefusedUsage: () => assert.fail('the usage was refused'),
  }
}

test('a cancel after the head of the stream is left to the allowance, although the server has sent no chunk yet', async (t) => {
  const { charged, voided, errorCode, upstream } = await leave(await routerTo(t, head), chargingParts())
  assert.deepEqual(
    [charged, voided, errorCode, upstream?.cost],
    [BigInt(inputTokens), undefined, 'cancel_allowance_spent', 5n],
  )
})

/** A round of this provider, as the estimate of its hidden reasoning sees it. */
const plainRound = {
  provider: 'one',
  model: 'm',
  effort: 'low',
  sealedBytes: 0,
  silentMs: 0,
  hasOutput: true,
  reasonedMs: 0,
  hasAnswer: true,
  seals: false,
  showsReasoning: false,
}

/** Sends chunks and keeps the stream open. */
function chunks(...sent: readonly object[]): ScriptedUpstream['answer'] {
  return (exchange) => {
    head(exchange)
    for (const chunk of sent) exchange.outgoing.write(`data: ${JSON.stringify({ id: 'c', ...chunk })}\n\n`)
  }
}

const delta = (content: object) => ({ choices: [{ index: 0, delta: content, finish_reason: null }] })
const usage = (completion_tokens: number, reasoning_tokens: number) => ({
  usage: { prompt_tokens: inputTokens, completion_tokens, completion_tokens_details: { reasoning_tokens } },
})

for (const [what, answer, expected] of [
  [
    'pays for the output that the server reported with its chunks',
    chunks({ ...delta({ role: 'assistant' }), ...usage(0, 0) }, { ...delta({ content: 'one two' }), ...usage(40, 30) }),
    [40, 30],
  ],
  [
    'pays for what it read where the server reported less',
    chunks({ ...delta({ role: 'assistant' }), ...usage(1, 0) }, delta({ content: 'one two' })),
    [2, 0],
  ],
  [
    'pays for encrypted reasoning by its size',
    chunks(
      delta({ reasoning_details: [{ type: 'reasoning.encrypted', data: 'A'.repeat(512 + 1_000) }] }),
      delta({ content: 'one two' }),
    ),
    [102, 100],
  ],
  [
    'pays nothing for a report that cannot be true',
    chunks({ ...delta({ role: 'assistant' }), ...usage(1_001, 1_000) }, delta({ content: 'one two' })),
    [2, 0],
  ],
] as const) {
  test(`a client that leaves during an answer ${what}`, async (t) => {
    const parts = chargingParts()
    // Otherwise the answer would be read on for its report.
    for (let answers = 0; answers < 8; answers += 1) parts.hiddenReasoning.learn(plainRound, 0)
    const end = await leave(await routerTo(t, answer), parts, ({ type }) => type === 'text')
    assert.deepEqual([end.usage?.completionTokens, end.usage?.reasoningTokens], expected)
    assert.equal(end.charged, BigInt(inputTokens + 5 * expected[0]))
  })
}

/** Two rounds that search, then the answer. */
function searchTwice(exchange: UpstreamExchange): void {
  const rounds = (exchange.body.messages as readonly { readonly role: string }[]).filter(({ role }) => role === 'tool')
  const search = { index: 0, id: `call_${rounds.length}`, function: { name: 'web_search', arguments: '{"query":"x"}' } }
  const isAnswer = rounds.length === 2
  chunks(
    delta(isAnswer ? { content: 'one' } : { tool_calls: [search] }),
    { choices: [{ index: 0, delta: {}, finish_reason: isAnswer ? 'stop' : 'tool_calls' }] },
    { choices: [], usage: { prompt_tokens: 5_000, completion_tokens: 1 } },
  )(exchange)
  exchange.outgoing.end('data: [DONE]\n\n')
}

for (const [what, searchMax] of [
  ['a hold that is extended', 1_000_000n],
  ['a hold that cannot be extended', 0n],
] as const) {
  test(`a long prompt is not counted again in later rounds: ${what}`, async (t) => {
    const prompt = 'word '.repeat(5_000)
    const chat = {
      model: 'm',
      messages: [{ role: 'user' as const, content: prompt }],
      stream: true,
      includeUsage: false,
      includeCost: false,
      maxTokens: 1_000,
      tools: [],
      toolChoice: 'auto' as const,
      responseFormat: { type: 'text' as const },
      reasoningEffort: 'low' as const,
    }
    const offer = new Set(['web_search'])
    const requestOptions = { promptCacheKey: 'key', extraTools: toolDefinitions(offer) }
    const request = toModelRequest(chat, requestOptions)
    const input = inputOf(request)
    const parts = chargingParts()
    const terms = {
      model,
      quote: { ...quote(model, 18_000, 1_000), inputTokensMax: 6_000 },
      searchPerCall: 1n,
      input: { ...input, tokens: await parts.countTokens(input.texts, accountId) },
    }
    const hold = { payer: { accountId, partition: 0, keyId: 'key' } }
    const admitted = { ...terms, chat, offer, requestOptions, request, searchMax, hold, sharesOf: accountId }
    const counted: string[] = []
    const counting = {
      ...parts,
      async countTokens(texts: readonly string[], account: string) {
        assert.equal(account, accountId)
        counted.push(...texts)
        return parts.countTokens(texts, account)
      },
    }
    const loop = {
      router: await routerTo(t, searchTwice),
      charging: counting,
      counting,
      failpoint() {},
      holds: { extend: async () => 'extended', recordToolCall() {} },
      web: {
        search: {
          search: async () => [{ title: 'Page', url: 'https://example.com', snippet: 'words '.repeat(2_000) }],
        },
      },
      onToolFault: (error: unknown) => assert.fail(String(error)),
    }
    const bill = new Bill(terms, () => 0)
    const events: ChatEvent[] = []
    for await (const some of answerInRounds({
      parts: loop as unknown as LoopParts,
      admitted: {
        ...admitted,
        requestId: createRequestId(0, 0),
        watch: new RequestWatch(() => 0, undefined),
      } as unknown as Serving['admitted'],
      bill,
      upstream: new UpstreamUse(),
      clientSignal: new AbortController().signal,
      waitForClient: () => undefined,
      leaving: new Leaving(bill, parts.hiddenReasoning),
    })) {
      events.push(...some)
    }
    assert.equal(events.at(-1)?.type, 'finish')
    assert.equal(bill.searchCalls, 2)
    assert.ok(counted.length > 0)
    assert.ok(!counted.includes(prompt))
    assert.equal(new Set(counted).size, counted.length, 'no text is counted twice')
    // What is remembered is what counting everything would give.
    const { texts, tokens } = bill.round!.input
    assert.equal(tokens, await parts.countTokens(texts, accountId))
  })
}
