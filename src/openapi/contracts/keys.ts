import { z } from 'zod'
import { limitWindows } from '../../identity/api-keys.ts'
import { allowedIpsMax, allowedModelsMax, isNetwork } from '../../identity/key-options.ts'
import { contract } from '../contract.ts'
import {
  address,
  count,
  instant,
  keyLimit,
  list,
  money,
  name,
  optionalMoney,
  requestCost,
  text,
  uuid,
} from '../shapes.ts'
import { request } from './requests.ts'

const limitWindow = z.enum(limitWindows)

const allowedModels = z
  .array(text(100))
  .max(allowedModelsMax)
  .meta({
    description: 'Allowed models; empty allows all. Others are refused with model_not_allowed',
    examples: [['gpt-5.6-luna', 'gpt-5.6-sol']],
  })
const webTools = z.boolean().meta({
  description: 'False turns web search and web fetch off; requests for them are refused with web_tools_not_allowed',
})
const allowedIps = z
  .array(z.string().refine(isNetwork, 'must be an IPv4 or IPv6 address or CIDR block, such as "203.0.113.0/24"'))
  .max(allowedIpsMax)
  .meta({
    description: 'Allowed IP addresses and CIDR blocks; empty allows all. Others are refused with ip_not_allowed',
    examples: [['203.0.113.0/24', '2001:db8::/32']],
  })

const key = z
  .object({
    object: z.literal('key'),
    id: uuid,
    name: z.string(),
    hint: z.string().meta({ examples: ['penny_…a1b2'] }),
    is_x402: z.boolean().meta({
      description:
        'The wallet’s own key in a wallet account: it has no secret, and its limits apply to what is paid over x402',
    }),
    status: z.enum(['active', 'disabled', 'revoked', 'expired']),
    ...optionalMoney('limit', 'remaining'),
    limit_window: limitWindow,
    ...money('spent', 'held'),
    allowed_models: allowedModels,
    ...optionalMoney('max_request_cost'),
    web_tools: webTools,
    allowed_ips: allowedIps,
    resets_at: instant.nullable().meta({ description: 'End of the limit window; null without a window' }),
    expires_at: instant.nullable(),
    revoked_at: instant.nullable(),
    last_used_at: instant.nullable(),
    created_at: instant,
    made_by: uuid
      .nullable()
      .meta({ description: 'Id of the member who created the key; null if a management key or a command did' }),
    old_secrets: z
      .array(z.object({ hint: z.string(), works_until: instant }))
      .meta({ description: 'Old secrets that still work after a rotation' }),
  })
  .meta({ id: 'Key' })

const keyWithSecret = key
  .extend({ secret: z.string().meta({ description: 'Returned only once' }) })
  .meta({ id: 'KeyWithSecret' })

const keyDetails = key
  .extend({
    refusals: z.array(z.object({ code: z.string(), count, last_at: instant })),
    spend_by_day: z.array(z.object({ day: z.iso.date(), ...money('spend'), requests: count })),
    recent: z.array(request),
  })
  .meta({ id: 'KeyDetails' })

const ownKey = key
  .extend({
    ...money('available'),
    deposit_address: address.nullable().meta({
      description: 'Send USDC here to top up the account. Null if no address could be assigned; try again later',
    }),
  })
  .meta({ id: 'OwnKey', description: 'The key of the request, and the available balance of its account' })

const terms = {
  limit: keyLimit.nullable().optional(),
  limit_window: limitWindow.optional(),
  expires_at: instant.nullable().optional(),
  allowed_models: allowedModels.optional(),
  max_request_cost: requestCost.nullable().optional(),
  web_tools: webTools.optional(),
  allowed_ips: allowedIps.optional(),
}

export const keyContracts = {
  getOwnKey: contract({
    operation: 'getOwnKey',
    method: 'GET',
    path: '/api/key',
    summary: 'Get the API key of the request: limit, spend and expiry, and the available balance of its account',
    access: 'key',
    answer: ownKey,
  }),
  listKeys: contract({
    operation: 'listKeys',
    method: 'GET',
    path: '/api/keys',
    summary: 'List API keys, newest first; at most 1,000. Members below admin see the keys that they created',
    access: 'session',
    role: 'viewer',
    scope: 'keys:read',
    isHeavy: true,
    answer: list(key),
  }),
  createKey: contract({
    operation: 'createKey',
    method: 'POST',
    path: '/api/keys',
    summary: 'Create an API key. Its secret is returned only once',
    access: 'session',
    role: 'developer',
    scope: 'keys:write',
    examples: { body: { name: 'production', limit: '5', limit_window: 'month' } },
    body: z.strictObject({ name, ...terms }),
    status: 201,
    answer: keyWithSecret,
  }),
  getKey: contract({
    operation: 'getKey',
    method: 'GET',
    path: '/api/keys/{id}',
    summary: 'Get one key with its refusals by reason, its spend by day and its newest requests',
    access: 'session',
    role: 'viewer',
    scope: 'keys:read',
    isHeavy: true,
    parameters: z.object({ id: uuid }),
    answer: keyDetails,
  }),
  updateKey: contract({
    operation: 'updateKey',
    method: 'PATCH',
    path: '/api/keys/{id}',
    summary: 'Change a key, effective from its next request. Omitted fields stay; null removes a limit, cap or expiry',
    access: 'session',
    role: 'developer',
    scope: 'keys:write',
    parameters: z.object({ id: uuid }),
    examples: { body: { limit: '10' } },
    body: z.strictObject({ name: name.optional(), ...terms, disabled: z.boolean().optional() }),
    answer: key,
  }),
  rotateKey: contract({
    operation: 'rotateKey',
    method: 'POST',
    path: '/api/keys/{id}/rotate',
    summary:
      'Rotate a key: create a new secret. The old one works for another `overlap_seconds`; at most 10 old ones do. Limit and spend stay',
    access: 'session',
    role: 'developer',
    scope: 'keys:write',
    parameters: z.object({ id: uuid }),
    body: z.strictObject({ overlap_seconds: z.int().min(0).max(604_800).default(0) }),
    answer: keyWithSecret,
  }),
  revokeKey: contract({
    operation: 'revokeKey',
    method: 'DELETE',
    path: '/api/keys/{id}',
    summary: 'Revoke a key permanently. Its running requests may finish',
    access: 'session',
    role: 'developer',
    scope: 'keys:write',
    parameters: z.object({ id: uuid }),
    answer: key,
  }),
} as const
