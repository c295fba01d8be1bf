import type { AccountRef } from '../db/account-ref.ts'
import { ServiceError } from '../errors.ts'
import {
  createManagementKey,
  findManagementKeyById,
  listManagementKeys,
  type ManagementKey,
  revokeManagementKey,
  rotateManagementKey,
  updateManagementKey,
} from '../identity/management-keys.ts'
import type { AnswerOf } from '../openapi/contract.ts'
import { managementKeyContracts } from '../openapi/contracts/management-keys.ts'
import { requireRecentSignIn } from './gate.ts'
import { readExpiry, readFutureExpiry } from './keys.ts'
import { logAccountEvent } from './log-account-event.ts'
import { type ApiRouter, NotFoundError } from './router.ts'
import type { ApiServices } from './services.ts'

type RenderedManagementKey = AnswerOf<typeof managementKeyContracts.getManagementKey>

/** Management keys. Only the response that creates or rotates a key contains its secret. */
export function routeManagementKeys(router: ApiRouter, services: ApiServices): void {
  const { database } = services

  router.at(managementKeyContracts.listManagementKeys).answer(async ({ owner }) => {
    const keys = await listManagementKeys(database, owner)
    return { object: 'list', data: keys.map(render), has_more: false, next_cursor: null }
  })

  router.at(managementKeyContracts.createManagementKey).answer(async (call) => {
    const { session, body } = call
    requireRecentSignIn(session)
    const { name } = body
    const scopes = [...new Set(body.scopes)]
    const expiresAt = readFutureExpiry(body.expires_at)
    const { id, secret } = await database.transaction(async (connection) => {
      await call.lockAccess(connection)
      const created = await createManagementKey(connection, session, {
        name,
        scopes,
        expiresAt,
        madeBy: session.personId,
      })
      const facts = { management_key_id: created.id, name, scopes }
      await logAccountEvent({ ...services, database: connection }, 'management_key_created', call, facts)
      return created
    })
    return { ...render(await ownKey(session, id)), secret }
  })

  router
    .at(managementKeyContracts.getManagementKey)
    .answer(async ({ owner, parameters }) => render(await ownKey(owner, parameters.id)))

  router.at(managementKeyContracts.updateManagementKey).answer(async (call) => {
    const { session, parameters, body } = call
    requireRecentSignIn(session)
    const { id, name } = await usableKey(session, parameters.id)
    const scopes = body.scopes && [...new Set(body.scopes)]
    const changes = { name: body.name, scopes, expiresAt: readExpiry(body.expires_at) }
    await database.transaction(async (connection) => {
      await call.lockAccess(connection)
      await updateManagementKey(connection, id, changes)
      const facts = { management_key_id: id, name, changed: Object.keys(body), ...(scopes && { scopes }) }
      await logAccountEvent({ ...services, database: connection }, 'management_key_changed', call, facts)
    })
    return render(await ownKey(session, id))
  })

  router.at(managementKeyContracts.rotateManagementKey).answer(async (call) => {
    const { session, parameters } = call
    requireRecentSignIn(session)
    const { id, name } = await usableKey(session, parameters.id)
    const { secret } = await database.transaction(async (connection) => {
      await call.lockAccess(connection)
      const rotated = await rotateManagementKey(connection, id, session.personId)
      const facts = { management_key_id: id, name }
      await logAccountEvent({ ...services, database: connection }, 'management_key_rotated', call, facts)
      return rotated
    })
    return { ...render(await ownKey(session, id)), secret }
  })

  router.at(managementKeyContracts.revokeManagementKey).answer(async (call) => {
    const { session, parameters } = call
    const key = await ownKey(session, parameters.id)
    // Idempotent: a second call changes nothing and is not logged again.
    if (key.revokedAt !== undefined) return render(key)
    await database.transaction(async (connection) => {
      await call.lockAccess(connection)
      await revokeManagementKey(connection, key.id)
      const facts = { management_key_id: key.id, name: key.name }
      await logAccountEvent({ ...services, database: connection }, 'management_key_revoked', call, facts)
    })
    return render(await ownKey(session, key.id))
  })

  async function ownKey(owner: AccountRef, id: string): Promise<ManagementKey> {
    const key = await findManagementKeyById(database, owner, id)
    if (key === undefined) throw new NotFoundError()
    return key
  }

  async function usableKey(owner: AccountRef, id: string): Promise<ManagementKey> {
    const key = await ownKey(owner, id)
    if (key.revokedAt !== undefined)
      throw new ServiceError(
        'invalid_value',
        'This management key was revoked and cannot be changed. Create a new one.',
      )
    return key
  }
}

function render(key: ManagementKey): RenderedManagementKey {
  return {
    object: 'management_key',
    id: key.id,
    name: key.name,
    hint: key.hint,
    status: key.revokedAt !== undefined ? 'revoked' : key.expired ? 'expired' : 'active',
    scopes: [...key.scopes],
    made_by: key.madeBy,
    created_at: key.createdAt.toISOString(),
    last_used_at: key.lastUsedAt?.toISOString() ?? null,
    expires_at: key.expiresAt?.toISOString() ?? null,
    revoked_at: key.revokedAt?.toISOString() ?? null,
  }
}
