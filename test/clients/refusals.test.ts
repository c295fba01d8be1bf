import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type ErrorCode, errorCodes, ServiceError } from '../../src/errors.ts'
import { errorResponse } from '../../src/http/error-response.ts'
import { revokeKey } from '../../src/identity/api-keys.ts'
import { fromAtomic } from '../../src/money/usdc.ts'
import { loadOpenAiValidators } from '../support/openai-schemas.ts'
import type { TestAccount } from '../support/service.ts'
import { clientSuite, dearModel, model } from './client-suite.ts'
import { question, staySilent, user } from './conversations.ts'
import { assertRowAddsUp } from './ledger-row.ts'
import type { Exchange } from './tap.ts'

// Every status that a client can meet, by plain HTTP. The suite itself holds each answer to the public schemas and to
// the rules of the wire.

const suite = clientSuite({ BODY_BYTES_MAX: '65536' })
const hastySuite = clientSuite({ UPSTREAM_FIRST_BYTE_MS: '50' })

const asked = { model, messages: [user(question)] }

type Refusal = {
  readonly status: number
  readonly code: ErrorCode
  readonly title: string
  readonly send: (account: TestAccount) => Promise<Exchange>
  /** Left out, one with money. */
  readonly account?: () => Promise<TestAccount>
}

const sendJson = (body: object | string) => (account: TestAccount) => suite.post(account, body)

const refusals: readonly Refusal[] = [
  { status: 400, code: 'invalid_json', title: 'half a body', send: sendJson('{"messages": [') },
  { status: 400, code: 'invalid_value', title: 'several choices', send: sendJson({ ...asked, n: 2 }) },
  {
    status: 400,
    code: 'invalid_value',
    title: 'an unknown response format',
    send: sendJson({ ...asked, response_format: { type: 'xml' } }),
  },
  { status: 400, code: 'missing_required_parameter', title: 'no messages', send: sendJson({ model }) },
  { status: 400, code: 'unsupported_parameter', title: 'functions', send: sendJson({ ...asked, functions: [{}] }) },
  {
    status: 400,
    code: 'unsupported_content',
    title: 'an image',
    send: sendJson({ messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:,' } }] }] }),
  },
  { status: 401, code: 'invalid_api_key', title: 'no such key', send: () => suite.post({ apiKey: 'penny_no' }, asked) },
  {
    status: 401,
    code: 'invalid_api_key',
    title: 'no key',
    send: () => suite.send('/chat/completions', undefined, { method: 'POST', body: JSON.stringify(asked) }),
  },
  {
    status: 401,
    code: 'api_key_expired',
    title: 'an expired key',
    account: () => suite.openAccount('25', { expiresAt: new Date(0) }),
    send: sendJson(asked),
  },
  {
    status: 401,
    code: 'api_key_revoked',
    title: 'a revoked key',
    send: async (account) => {
      await revokeKey(suite.service.database, account.keyId)
      return suite.post(account, asked)
    },
  },
  {
    status: 402,
    code: 'insufficient_balance',
    title: 'an empty balance',
    account: () => suite.openAccount('0'),
    send: sendJson(asked),
  },
  {
    status: 402,
    code: 'key_limit_exceeded',
    title: 'a key at its limit',
    account: () => suite.openAccount('25', { limit: fromAtomic(1n) }),
    send: sendJson(asked),
  },
  { status: 404, code: 'model_not_found', title: 'an unknown model', send: sendJson({ ...asked, model: 'gpt-0' }) },
  {
    status: 404,
    code: 'model_not_found',
    title: 'an unknown model’s entry',
    send: (account) => suite.send('/models/gpt-0', account),
  },
  {
    status: 404,
    code: 'unknown_url',
    title: 'embeddings',
    send: (account) => suite.send('/embeddings', account, { method: 'POST', body: '{}' }),
  },
  {
    status: 405,
    code: 'method_not_allowed',
    title: 'a completion that is fetched',
    send: (account) => suite.send('/chat/completions', account),
  },
  {
    status: 413,
    code: 'body_too_large',
    title: 'a body above the limit',
    send: sendJson({ messages: [user('x'.repeat(100_000))] }),
  },
  {
    status: 415,
    code: 'unsupported_media_type',
    title: 'a form',
    send: (account) =>
      suite.send('/chat/completions', account, {
        method: 'POST',
        body: 'messages=1',
        headers: { 'content-type': 'application/x-www-form-urlencoded' },
      }),
  },
  {
    status: 429,
    code: 'quote_exceeds_cap',
    title: 'a quote above the cap',
    send: sendJson({ ...asked, model: dearModel, max_tokens: 100_000 }),
  },
  {
    status: 429,
    code: 'in_flight_cap',
    title: 'too much in flight',
    send: async (account) => {
      const full = await suite.fillCap(account)
      const exchange = await suite.post(account, asked)
      await full.release()
      return exchange
    },
  },
]

const loggedStatuses = new Set([400, 402, 404, 429])

for (const { title, status, code, account: open = () => suite.openAccount(), send } of refusals) {
  test(`${title}: ${status} ${code}, and nothing is held`, async () => {
    const account = await open()
    const { headers, text, path, ...exchange } = await send(account)
    const error = errorOf(text)
    assert.deepEqual([exchange.status, error.code, error.request_id], [status, code, headers['x-request-id']], text)
    assert.match(error.doc_url, new RegExp(`#${code}$`))
    assert.ok(error.message.length > 20)
    assert.ok(!('x-router-held-usdc' in headers))
    assert.equal(headers['x-should-retry'], String(code === 'in_flight_cap'))
    assert.equal('retry-after' in headers, code === 'in_flight_cap')
    if (!loggedStatuses.has(status) || path !== '/v1/chat/completions') return
    const row = await suite.ended(account, headers['x-router-request-id']!)
    assert.deepEqual([row.status, row.charged_atomic, row.error?.code], ['refused', '0', code])
  })
}

type ErrorBody = Readonly<Record<'code' | 'message' | 'doc_url' | 'request_id', string>>

function errorOf(text: string): ErrorBody {
  return (JSON.parse(text) as { readonly error: ErrorBody }).error
}

const upstreamErrors = [
  { upstream: 400, status: 400, code: 'invalid_value', retry: 'false' },
  { upstream: 401, status: 502, code: 'upstream_error', retry: undefined },
  { upstream: 403, status: 502, code: 'upstream_error', retry: undefined },
  { upstream: 404, status: 502, code: 'upstream_error', retry: undefined },
  { upstream: 429, status: 503, code: 'overloaded', retry: 'true' },
  { upstream: 500, status: 502, code: 'upstream_error', retry: undefined },
  { upstream: 503, status: 502, code: 'upstream_error', retry: undefined },
] as const

for (const { upstream, status, code, retry } of upstreamErrors) {
  test(`a ${upstream} of the upstream is a ${status}, buffered and streamed, and the whole hold is given back`, async () => {
    const account = await suite.openAccount()
    const body = { messages: [user(`Hello? [sandbox:error ${upstream}]`)] }
    for (const exchange of [await suite.post(account, body), await suite.post(account, { ...body, stream: true })]) {
      assert.deepEqual([exchange.status, errorOf(exchange.text).code], [status, code])
      assert.equal(exchange.headers['x-should-retry'], retry)
      await assertVoided(account, exchange, code)
    }
  })
}

async function assertVoided(account: TestAccount, exchange: Exchange, code: string, of = suite): Promise<void> {
  const row = await of.ended(account, exchange.headers['x-router-request-id']!)
  assert.deepEqual([row.status, row.charged_atomic, row.error?.code], ['failed', '0', code])
  assertRowAddsUp(row, exchange)
}

test('an upstream that does not answer in time is a 504, and the whole hold is given back', async () => {
  const account = await hastySuite.openAccount()
  const exchange = await hastySuite.post(account, { messages: [user(staySilent)] })
  assert.deepEqual([exchange.status, errorOf(exchange.text).code], [504, 'upstream_timeout'])
  await assertVoided(account, exchange, 'upstream_timeout', hastySuite)
})

test('the envelope of every error there is, also of those that no test can provoke, is valid', () => {
  const { error: validate } = loadOpenAiValidators()
  for (const code of errorCodes) {
    const { body } = errorResponse(new ServiceError(code, 'why'), { requestId: 'req_1', publicUrl: 'http://localhost' })
    assert.deepEqual(validate(body), [], code)
  }
})
