import { z } from 'zod'
import { eventTypes } from '../../db/write-event.ts'
import { deliveryStates } from '../../webhooks/deliveries.ts'
import { disabledReasons } from '../../webhooks/endpoints.ts'
import { contract } from '../contract.ts'
import { count, instant, list, page, text, uuid } from '../shapes.ts'

const url = text(2_048).meta({
  description: 'A public https address on port 443. In a sandbox on your own machine also http://localhost:PORT',
  examples: ['https://example.com/penny-events'],
})
const types = z
  .array(z.enum(eventTypes))
  .min(1)
  .max(50)
  .meta({ description: 'The types of events that are sent', examples: [['request.ended', 'deposit.credited']] })
const description = text(200)

const endpoint = z
  .object({
    object: z.literal('webhook'),
    id: uuid,
    url: z.string(),
    description: z.string(),
    types,
    status: z.enum(['enabled', 'disabled']),
    disabled_at: instant.nullable(),
    disabled_reason: z.enum(disabledReasons).nullable().meta({
      description:
        'failing: no attempt succeeded for three days. behind: more than 10,000 events were waiting. gone: it answered 410. by_owner: disabled by you',
    }),
    failing_since: instant
      .nullable()
      .meta({ description: 'First of the failed attempts in a row; null after a success' }),
    old_secrets_until: z.array(instant).meta({
      description: 'When each old secret ends. Until then messages also have its signature; the newest comes first',
    }),
    created_at: instant,
  })
  .meta({ id: 'Webhook' })

const endpointWithSecret = endpoint
  .extend({
    secret: z
      .string()
      .meta({ description: 'Returned only once', examples: ['whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD'] }),
  })
  .meta({ id: 'WebhookWithSecret' })

const delivery = z
  .object({
    object: z.literal('webhook_delivery'),
    id: z.string().meta({ description: 'The value of webhook-id', examples: ['evt_0f3c2f0e8a4b4b0fa4dd1c8e1f6c9b1a'] }),
    type: z.string().meta({ description: 'Type of the event, or webhook.test' }),
    state: z.enum(deliveryStates).meta({ description: 'failed: given up three days after the event' }),
    body: z.string().meta({ description: 'The exact body that was sent' }),
    attempts: z
      .array(
        z.object({
          at: instant,
          status: z.int().nullable().meta({ description: 'HTTP status; null when there was no answer' }),
          error: z.string().nullable(),
          duration_ms: count,
          answer: z.string().meta({ description: 'The first 1,000 characters of the answer' }),
        }),
      )
      .meta({ description: 'The last 20' }),
    next_attempt_at: instant.nullable(),
    created_at: instant,
  })
  .meta({ id: 'WebhookDelivery' })

export const webhookContracts = {
  listWebhooks: contract({
    operation: 'listWebhooks',
    method: 'GET',
    path: '/api/webhooks',
    summary: 'List webhook endpoints, oldest first',
    access: 'session',
    role: 'admin',
    scope: 'webhooks:read',
    answer: list(endpoint),
  }),
  createWebhook: contract({
    operation: 'createWebhook',
    method: 'POST',
    path: '/api/webhooks',
    summary: 'Create a webhook endpoint. It gets events from now on. Its secret is returned only once',
    access: 'session',
    role: 'admin',
    scope: 'webhooks:write',
    body: z.strictObject({ url, types, description: description.default('') }),
    status: 201,
    answer: endpointWithSecret,
    examples: { body: { url: 'https://example.com/penny-events', types: ['request.ended', 'deposit.credited'] } },
  }),
  getWebhook: contract({
    operation: 'getWebhook',
    method: 'GET',
    path: '/api/webhooks/{id}',
    summary: 'Get one webhook endpoint',
    access: 'session',
    role: 'admin',
    scope: 'webhooks:read',
    parameters: z.object({ id: uuid }),
    answer: endpoint,
  }),
  updateWebhook: contract({
    operation: 'updateWebhook',
    method: 'PATCH',
    path: '/api/webhooks/{id}',
    summary: 'Change, disable or enable a webhook endpoint. A re-enabled endpoint gets events from that time on',
    access: 'session',
    role: 'admin',
    scope: 'webhooks:write',
    parameters: z.object({ id: uuid }),
    body: z.strictObject({
      url: url.optional(),
      types: types.optional(),
      description: description.optional(),
      enabled: z.boolean().optional(),
    }),
    answer: endpoint,
    examples: { body: { enabled: false } },
  }),
  rotateWebhook: contract({
    operation: 'rotateWebhook',
    method: 'POST',
    path: '/api/webhooks/{id}/rotate',
    summary:
      'Rotate the secret of a webhook endpoint. Messages are signed with the old one too for another `overlap_seconds`',
    access: 'session',
    role: 'admin',
    scope: 'webhooks:write',
    parameters: z.object({ id: uuid }),
    body: z.strictObject({ overlap_seconds: z.int().min(0).max(604_800).default(86_400) }),
    answer: endpointWithSecret,
  }),
  removeWebhook: contract({
    operation: 'removeWebhook',
    method: 'DELETE',
    path: '/api/webhooks/{id}',
    summary: 'Remove a webhook endpoint and its deliveries',
    access: 'session',
    role: 'admin',
    scope: 'webhooks:write',
    parameters: z.object({ id: uuid }),
    status: 204,
  }),
  testWebhook: contract({
    operation: 'testWebhook',
    method: 'POST',
    path: '/api/webhooks/{id}/test',
    summary: 'Send a test event to a webhook endpoint',
    access: 'session',
    role: 'admin',
    scope: 'webhooks:write',
    parameters: z.object({ id: uuid }),
    status: 202,
    answer: delivery,
  }),
  listWebhookDeliveries: contract({
    operation: 'listWebhookDeliveries',
    method: 'GET',
    path: '/api/webhooks/{id}/deliveries',
    summary: 'List what was sent to a webhook endpoint, newest first, with every attempt',
    access: 'session',
    role: 'admin',
    scope: 'webhooks:read',
    isHeavy: true,
    parameters: z.object({ id: uuid }),
    query: z.object(page),
    answer: list(delivery),
  }),
  resendWebhookDelivery: contract({
    operation: 'resendWebhookDelivery',
    method: 'POST',
    path: '/api/webhooks/{id}/deliveries/{event}/resend',
    summary: 'Send an event again, with the same webhook-id',
    access: 'session',
    role: 'admin',
    scope: 'webhooks:write',
    parameters: z.object({ id: uuid, event: text(100) }),
    status: 202,
    answer: delivery,
  }),
} as const
