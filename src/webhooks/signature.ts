import { createHmac, timingSafeEqual } from 'node:crypto'

// Standard Webhooks (standardwebhooks.com): HMAC-SHA256 over "id.timestamp.body", in the header as "v1,BASE64". During a rotation the
// header has one signature for each secret, with a space between them.

const prefix = 'whsec_'
/** How far the clocks of sender and receiver may differ, and how old a captured message may be. */
const toleranceSeconds = 300

export type WebhookMessage = { readonly id: string; readonly timestamp: number; readonly body: string }

export function formatSecret(secret: Uint8Array): string {
  return `${prefix}${Buffer.from(secret).toString('base64')}`
}

/** Undefined when the text is not the secret of a webhook. */
export function parseSecret(text: string): Buffer | undefined {
  if (!text.startsWith(prefix)) return undefined
  const secret = Buffer.from(text.slice(prefix.length), 'base64')
  return secret.length >= 24 && secret.length <= 64 ? secret : undefined
}

/** The three headers of a message, signed with each of the secrets. */
export function signedHeaders(secrets: readonly Uint8Array[], message: WebhookMessage): Record<string, string> {
  return {
    'webhook-id': message.id,
    'webhook-timestamp': String(message.timestamp),
    'webhook-signature': secrets.map((secret) => `v1,${sign(secret, message).toString('base64')}`).join(' '),
  }
}

export type ReceivedHeaders = Readonly<Record<string, string | readonly string[] | undefined>>

/** Why a received message cannot be trusted; undefined when it can. */
export function findForgery(
  secret: Uint8Array,
  headers: ReceivedHeaders,
  body: string,
  nowSeconds: number,
): string | undefined {
  const [id, timestamp, signatures] = ['webhook-id', 'webhook-timestamp', 'webhook-signature'].map(
    (name) => headers[name],
  )
  if (typeof id !== 'string' || typeof timestamp !== 'string' || typeof signatures !== 'string')
    return 'a webhook-… header is missing'
  if (!/^\d{1,12}$/.test(timestamp) || Math.abs(nowSeconds - Number(timestamp)) > toleranceSeconds)
    return `webhook-timestamp is more than ${toleranceSeconds} seconds away from this machine’s clock`
  const expected = sign(secret, { id, timestamp: Number(timestamp), body })
  const matches = signatures.split(' ').some((signature) => {
    const given = signature.startsWith('v1,') ? Buffer.from(signature.slice(3), 'base64') : Buffer.alloc(0)
    return given.length === expected.length && timingSafeEqual(given, expected)
  })
  return matches ? undefined : 'no signature matches the secret'
}

function sign(secret: Uint8Array, { id, timestamp, body }: WebhookMessage): Buffer {
  return createHmac('sha256', secret).update(`${id}.${timestamp}.${body}`).digest()
}
