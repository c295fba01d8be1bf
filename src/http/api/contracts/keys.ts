import { z } from 'zod'
import { contract } from '../contract.ts'
import { count, instant, keyLimit, list, money, name, optionalMoney, uuid } from '../shapes.ts'
import { request } from './requests.ts'

const limitWindow = z.enum(['lifetime', 'day', 'week', 'month'])

const key = z
  .object({
    object: z.literal('key'),
    id: uuid,
    name: z.string(),
    hint: z.string().meta({ examples: ['penny_…a1b2'] }),
    status: z.enum(['active', 'disabled', 'revoked', 'expired']),
    ...optionalMoney('limit', 'remaining'),
    limit_window: limitWindow,
    ...money('spent', 'held'),
    resets_at: instant.nullable().meta({ description: 'When the window ends; null without one' }),
    expires_at: instant.nullable(),
    revoked_at: instant.nullable(),
    last_used_at: instant.nullable(),
    created_at: instant,
    old_secrets: z
      .array(z.object({ hint: z.string(), works_until: instant }))
      .meta({ description: 'Secrets from before a roll that still work' }),
  })
  .meta({ id: 'Key' })

const keyWithSecret = key
  .extend({ secret: z.string().meta({ description: 'Shown this once, in no other answer' }) })
  .meta({ id: 'KeyWithSecret' })

const keyDetails = key
  .extend({
    refusals: z.array(z.object({ code: z.string(), count, last_at: instant })),
    spend_by_day: z.array(z.object({ day: z.iso.date(), ...money('spend'), requests: count })),
    recent: z.array(request),
  })
  .meta({ id: 'KeyDetails' })

const ownKey = key
  .extend({ ...money('available') })
  .meta({ id: 'OwnKey', description: 'The key that asks, and what its account can spend' })

const terms = {
  limit: keyLimit.nullable().optional(),
  limit_window: limitWindow.optional(),
  expires_at: instant.nullable().optional(),
}

export const keyContracts = {
  getOwnKey: contract({
    operation: 'getOwnKey',
    method: 'GET',
    path: '/api/key',
    summary: 'The API key that asks: its limit, spend and expiry, and what its account can spend',
    access: 'key',
    answer: ownKey,
  }),
  listKeys: contract({
    operation: 'listKeys',
    method: 'GET',
    path: '/api/keys',
    summary: 'The account’s API keys, newest first; at most a thousand',
    access: 'session',
    answer: list(key),
  }),
  createKey: contract({
    operation: 'createKey',
    method: 'POST',
    path: '/api/keys',
    summary: 'Makes an API key. Its secret is in this answer and never again',
    access: 'session',
    body: z.strictObject({ name, ...terms }),
    status: 201,
    answer: keyWithSecret,
  }),
  getKey: contract({
    operation: 'getKey',
    method: 'GET',
    path: '/api/keys/{id}',
    summary: 'One key, with its refusals by reason, its spend by day and its newest requests',
    access: 'session',
    isHeavy: true,
    parameters: z.object({ id: uuid }),
    answer: keyDetails,
  }),
  updateKey: contract({
    operation: 'updateKey',
    method: 'PATCH',
    path: '/api/keys/{id}',
    summary: 'Changes a key from its next request on. What is left out stays; null takes a limit or an expiry away',
    access: 'session',
    parameters: z.object({ id: uuid }),
    body: z.strictObject({ name: name.optional(), ...terms, disabled: z.boolean().optional() }),
    answer: key,
  }),
  rollKey: contract({
    operation: 'rollKey',
    method: 'POST',
    path: '/api/keys/{id}/roll',
    summary: 'Gives a key a new secret; the old one works for `overlap_seconds` more. Limit and spend stay',
    access: 'session',
    parameters: z.object({ id: uuid }),
    body: z.strictObject({ overlap_seconds: z.int().min(0).max(604_800).default(0) }),
    answer: keyWithSecret,
  }),
  revokeKey: contract({
    operation: 'revokeKey',
    method: 'DELETE',
    path: '/api/keys/{id}',
    summary: 'Revokes a key for ever. Requests that it already pays for may end',
    access: 'session',
    parameters: z.object({ id: uuid }),
    answer: key,
  }),
} as const
