import type { AccountRef } from '../db/account-ref.ts'
import type { AnswerOf } from '../openapi/contract.ts'
import { webhookContracts } from '../openapi/contracts/webhooks.ts'
import { unusable } from '../openapi/input-refusal.ts'
import { parsePostUrl } from '../tools/safe-post.ts'
import { RefusedUrlError } from '../tools/untrusted-url.ts'
import {
  type Delivery,
  formatEventId,
  listDeliveries,
  parseEventId,
  renderBody,
  resend,
  sendTest,
} from '../webhooks/deliveries.ts'
import {
  createEndpoint,
  findEndpoint,
  listEndpoints,
  removeEndpoint,
  rotateSecret,
  updateEndpoint,
  type WebhookEndpoint,
} from '../webhooks/endpoints.ts'
import { formatSecret } from '../webhooks/signature.ts'
import { pageOf } from './funds.ts'
import { logAccountEvent } from './log-account-event.ts'
import { type ApiRouter, NotFoundError } from './router.ts'
import type { ApiServices } from './services.ts'

type RenderedEndpoint = AnswerOf<typeof webhookContracts.getWebhook>
type RenderedDelivery = AnswerOf<typeof webhookContracts.testWebhook>

/** Webhook endpoints and their deliveries. Only the response that creates or rotates a secret contains it. */
export function routeWebhooks(router: ApiRouter, services: ApiServices): void {
  const { database, allowsLoopbackWebhooks } = services

  router.at(webhookContracts.listWebhooks).answer(async ({ owner }) => {
    const endpoints = await listEndpoints(database, owner)
    return { object: 'list', data: endpoints.map(renderEndpoint), has_more: false, next_cursor: null }
  })

  router.at(webhookContracts.createWebhook).answer(async (call) => {
    const { owner, body } = call
    const url = checkUrl(body.url)
    const endpoint = await database.transaction(async (connection) => {
      await call.lockAccess(connection)
      const created = await createEndpoint(connection, owner, { ...body, url })
      await logAccountEvent({ ...services, database: connection }, 'webhook_created', call, { webhook_id: created.id })
      return created
    })
    return { ...renderEndpoint(endpoint), secret: formatSecret(endpoint.secret) }
  })

  router
    .at(webhookContracts.getWebhook)
    .answer(async ({ owner, parameters }) => renderEndpoint(await ownEndpoint(owner, parameters.id)))

  router.at(webhookContracts.updateWebhook).answer(async (call) => {
    const { owner, parameters, body } = call
    const { id } = await ownEndpoint(owner, parameters.id)
    const changes = { ...body, url: body.url && checkUrl(body.url) }
    const facts = { webhook_id: id, changed: Object.keys(body) }
    await database.transaction(async (connection) => {
      await call.lockAccess(connection)
      await updateEndpoint(connection, owner, id, changes)
      await logAccountEvent({ ...services, database: connection }, 'webhook_changed', call, facts)
    })
    return renderEndpoint(await ownEndpoint(owner, id))
  })

  router.at(webhookContracts.rotateWebhook).answer(async (call) => {
    const { owner, parameters, body } = call
    const facts = { webhook_id: parameters.id, changed: ['secret'] }
    const secret = await database.transaction(async (connection) => {
      await call.lockAccess(connection)
      const rotated = await rotateSecret(connection, owner, parameters.id, body.overlap_seconds)
      if (rotated === undefined) throw new NotFoundError()
      await logAccountEvent({ ...services, database: connection }, 'webhook_changed', call, facts)
      return rotated
    })
    return { ...renderEndpoint(await ownEndpoint(owner, parameters.id)), secret: formatSecret(secret) }
  })

  router.at(webhookContracts.removeWebhook).answer(async (call) => {
    const { owner, parameters } = call
    const { id } = await ownEndpoint(owner, parameters.id)
    await database.transaction(async (connection) => {
      await call.lockAccess(connection)
      await removeEndpoint(connection, owner, id)
      await logAccountEvent({ ...services, database: connection }, 'webhook_removed', call, { webhook_id: id })
    })
    return undefined
  })

  router.at(webhookContracts.testWebhook).answer(async ({ owner, parameters }) => {
    const endpoint = await ownEndpoint(owner, parameters.id)
    return renderDelivery(endpoint, await sendTest(database, endpoint))
  })

  router.at(webhookContracts.listWebhookDeliveries).answer(async ({ owner, parameters, query }) => {
    const endpoint = await ownEndpoint(owner, parameters.id)
    const { rows, next } = await pageOf(query, async (below) =>
      (await listDeliveries(database, endpoint, below)).map((delivery) => ({ ...delivery, id: delivery.eventId })),
    )
    return {
      object: 'list',
      data: rows.map((delivery) => renderDelivery(endpoint, delivery)),
      has_more: next !== null,
      next_cursor: next,
    }
  })

  router.at(webhookContracts.resendWebhookDelivery).answer(async ({ owner, parameters }) => {
    const endpoint = await ownEndpoint(owner, parameters.id)
    const eventId = parseEventId(parameters.event)
    const delivery = eventId === undefined ? undefined : await resend(database, endpoint, eventId)
    if (delivery === undefined) throw new NotFoundError()
    return renderDelivery(endpoint, delivery)
  })

  async function ownEndpoint(owner: AccountRef, id: string): Promise<WebhookEndpoint> {
    const endpoint = await findEndpoint(database, owner, id)
    if (endpoint === undefined) throw new NotFoundError()
    return endpoint
  }

  function checkUrl(url: string): string {
    try {
      return parsePostUrl(url, allowsLoopbackWebhooks).href
    } catch (error) {
      if (error instanceof RefusedUrlError) throw unusable('url', `it ${error.rule}`)
      throw error
    }
  }
}

export function renderEndpoint(endpoint: WebhookEndpoint): RenderedEndpoint {
  return {
    object: 'webhook',
    id: endpoint.id,
    url: endpoint.url,
    description: endpoint.description,
    types: [...endpoint.types],
    status: endpoint.disabledAt === undefined ? 'enabled' : 'disabled',
    disabled_at: endpoint.disabledAt?.toISOString() ?? null,
    disabled_reason: endpoint.disabledReason ?? null,
    failing_since: endpoint.failingSince?.toISOString() ?? null,
    old_secrets_until: endpoint.oldSecrets.map(({ until }) => until.toISOString()),
    created_at: endpoint.createdAt.toISOString(),
  }
}

function renderDelivery(endpoint: WebhookEndpoint, delivery: Delivery): RenderedDelivery {
  return {
    object: 'webhook_delivery',
    id: formatEventId(delivery.eventId),
    type: delivery.type,
    state: delivery.state,
    body: renderBody(endpoint, delivery),
    attempts: [...delivery.attempts],
    next_attempt_at: delivery.dueAt?.toISOString() ?? null,
    created_at: delivery.createdAt.toISOString(),
  }
}
