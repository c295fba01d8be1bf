import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import {
  answeringParts,
  heldRequest,
  answeringModel as model,
  readingClient,
  wordCounter,
} from '../../test/support/answering.ts'
import { atEnd } from '../../test/support/at-end.ts'
import {
  type ScriptedUpstream,
  startScriptedUpstream,
  type UpstreamExchange,
} from '../../test/support/scripted-upstream.ts'
import type { Bill } from '../billing/bill.ts'
import type { ChargingParts } from '../billing/charge.ts'
import { quote } from '../billing/quote.ts'
import type { ChatEvent } from '../inference/chat-events.ts'
import { fromAtomic } from '../money/usdc.ts'
import { inputOf, type ModelRequest, toModelRequest } from '../providers/model-request.ts'
import { Router } from '../providers/router.ts'
import type { AdmittedRequest } from './admit.ts'
import { Answer, type FirstClient, type ServingParts } from './answer.ts'
import { toolDefinitions } from './tool-offer.ts'

// One request to a server of the chat-completions protocol that its client leaves. Input costs 1 atomic unit a token, output 5; the
// provider charges half of that.

const accountId = 'account'
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
async function leave(router: Router, charging: ChargingParts, isEnough?: (event: ChatEvent) => boolean) {
  const connection = new AbortController()
  const asked: Pick<Router, 'ask'> = {
    ask(question) {
      const { sink } = question
      const onAccepted = () => {
        sink.onAccepted()
        if (isEnough === undefined) connection.abort()
      }
      return router.ask({ ...question, sink: { ...sink, onAccepted } })
    },
  }
  const { parts, ends } = answeringParts({ router: asked, charging, counting: charging })
  const { client, errors } = readingClient(connection.signal, (event) => {
    if (isEnough?.(event)) connection.abort()
  })
  await serve(parts, heldRequest({ input }), client)
  assert.deepEqual(errors, [])
  return ends[0]!
}

function serve(parts: ServingParts, admitted: AdmittedRequest, client: FirstClient): Promise<void> {
  return new Answer(admitted.requestId, admitted.hold.payer).serve(parts, admitted, client)
}

test('a cancel after the head of the stream is left to the allowance, although the server has sent no chunk yet', async (t) => {
  const { charged, voided, errorCode, upstream } = await leave(await routerTo(t, head), wordCounter())
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
    const parts = wordCounter()
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
    const asked = heldRequest({}, prompt)
    const offer = new Set(['web_search'])
    const requestOptions = { promptCacheKey: 'key', extraTools: toolDefinitions(offer) }
    const request = toModelRequest(asked.chat, requestOptions)
    const charging = wordCounter()
    const input = inputOf(request)
    const admitted = {
      ...asked,
      offer,
      requestOptions,
      request,
      input: { ...input, tokens: await charging.countTokens(input.texts, accountId) },
      quote: { ...quote(model, 18_000, 1_000), inputTokensMax: 6_000 },
      searchPerCall: 1n,
      searchMax: fromAtomic(searchMax),
    }
    const counted: string[] = []
    const counting = {
      ...charging,
      async countTokens(texts: readonly string[], account: string) {
        assert.equal(account, accountId)
        counted.push(...texts)
        return charging.countTokens(texts, account)
      },
    }
    const sent: ModelRequest[] = []
    const router = await routerTo(t, searchTwice)
    const watched: Pick<Router, 'ask'> = {
      ask(question) {
        sent.push(question.request)
        return router.ask(question)
      },
    }
    const search = async () => [{ title: 'Page', url: 'https://example.com', snippet: 'words '.repeat(2_000) }]
    const { parts, ends } = answeringParts({
      router: watched,
      charging: counting,
      counting,
      web: { search: { search } },
    })
    const bills: Bill[] = []
    const watch = ({ bill }: { readonly bill: Bill }) => {
      bills.push(bill)
      return () => {}
    }
    const { client, events, errors } = readingClient(new AbortController().signal)
    await serve({ ...parts, checkpoints: { watch } as unknown as ServingParts['checkpoints'] }, admitted, client)
    assert.deepEqual(errors, [])
    assert.equal(events.at(-1)?.type, 'finish')
    assert.deepEqual([sent.length, ends[0]?.searchCalls], [3, 2])
    assert.ok(counted.length > 0)
    assert.ok(!counted.includes(prompt))
    assert.equal(new Set(counted).size, counted.length, 'no text is counted twice')
    // What is remembered is what counting everything would give.
    const { texts, tokens } = bills[0]!.round!.input
    assert.equal(tokens, await charging.countTokens(texts, accountId))
  })
}
