import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'
import { Webhook } from 'standardwebhooks'
import { retryDelayMs } from './deliverer.ts'
import { findForgery, formatSecret, parseSecret, signedHeaders } from './signature.ts'

const secret = randomBytes(32)
const now = Math.floor(Date.now() / 1000)
const message = { id: 'evt_1', timestamp: now, body: '{"type":"é"}' }

test('signatures are those of the public library, in both directions', () => {
  assert.deepEqual(new Webhook(formatSecret(secret)).verify(message.body, signedHeaders([secret], message)), {
    type: 'é',
  })
  const signature = new Webhook(formatSecret(secret)).sign(message.id, new Date(now * 1000), message.body)
  const headers = { ...signedHeaders([secret], message), 'webhook-signature': signature }
  assert.equal(findForgery(secret, headers, message.body, now), undefined)
  assert.deepEqual(parseSecret(formatSecret(secret)), secret)
})

// The vector that all libraries of the specification share (github.com/standard-webhooks/standard-webhooks, MIT).
test('the signature of the specification’s test vector is the expected one', () => {
  const vector = { id: 'msg_p5jXN8AQM9LWM0D4loKWxJek', timestamp: 1614265330, body: '{"test": 2432232314}' }
  const headers = signedHeaders([parseSecret('whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw')!], vector)
  assert.equal(headers['webhook-signature'], 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=')
})

test('a message is refused when its body, id, time or secret is not the signed one', () => {
  const headers = signedHeaders([secret], message)
  const forgeries = [
    findForgery(randomBytes(32), headers, message.body, now),
    findForgery(secret, headers, `${message.body} `, now),
    findForgery(secret, { ...headers, 'webhook-id': 'evt_2' }, message.body, now),
    findForgery(secret, { ...headers, 'webhook-signature': 'v1,AAAA v2,x' }, message.body, now),
    findForgery(secret, headers, message.body, now + 301),
    findForgery(secret, {}, message.body, now),
  ]
  assert.deepEqual(
    forgeries.map((reason) => reason !== undefined),
    forgeries.map(() => true),
  )
  assert.deepEqual(['secret', 'whsec_', 'whsec_AAAA'].map(parseSecret), [undefined, undefined, undefined])
})

test('retries come after seconds, then minutes, then hours', () => {
  assert.deepEqual(
    [1, 2, 3, 10, 50].map((failures) => retryDelayMs(failures, 0.5)),
    [5_000, 30_000, 120_000, 43_200_000, 43_200_000],
  )
  assert.deepEqual(
    [0, 1].map((random) => retryDelayMs(1, random)),
    [4_500, 5_500],
  )
})
