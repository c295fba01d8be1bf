import { type LogRow, readAccountLog } from '../db/account-log.ts'
import type { Connection } from '../db/database.ts'
import { clearedCookie } from '../http/origin.ts'
import type { LimitWindow } from '../identity/api-keys.ts'
import { changeMember, findMember, listMembers, type Member, removeMember } from '../identity/members.ts'
import { renamePerson } from '../identity/people.ts'
import type { RevokedSecrets } from '../identity/revoke-secrets.ts'
import { switchAccount } from '../identity/sessions.ts'
import { format, type Usdc } from '../money/usdc.ts'
import type { AnswerOf } from '../openapi/contract.ts'
import { memberContracts } from '../openapi/contracts/members.ts'
import { ownerCooldownMs } from './chain-services.ts'
import { pageOf } from './funds.ts'
import { requireRecentSignIn } from './gate.ts'
import { readLimit } from './keys.ts'
import { type Actor, logAccountEvent } from './log-account-event.ts'
import { type ApiRouter, type Call, NotFoundError } from './router.ts'
import type { ApiServices } from './services.ts'

/** Members and the account's log. */
export function routeMembers(router: ApiRouter, services: ApiServices): void {
  const { database, keys: finder, site } = services

  router.at(memberContracts.listMembers).answer(async ({ owner }) => {
    const members = await listMembers(database, owner)
    return { object: 'list', data: members.map(renderMember), has_more: false, next_cursor: null }
  })

  router.at(memberContracts.updateMember).answer(async (call) => {
    const { session, parameters, body } = call
    requireRecentSignIn(session)
    const changes = { role: body.role, limit: readLimit(body.limit), limitWindow: body.limit_window }
    const { changedKeyIds } = await database.transaction(async (connection) => {
      const { session: by } = await call.lockAccess(connection)
      const member = { by, personId: parameters.id, ownerCooldownMs: ownerCooldownMs(services) }
      const changed = await changeMember(connection, session, member, changes)
      await logRevokedSecrets(connection, call, changed)
      const { name, role, limit } = (await findMember(connection, session, parameters.id))!
      const facts = {
        member_id: parameters.id,
        name,
        role,
        changed: Object.keys(body),
        limit: limit?.toString() ?? null,
      }
      await logAccountEvent({ ...services, database: connection }, 'member_changed', call, facts)
      return changed
    })
    for (const keyId of changedKeyIds) finder.forget(keyId)
    return renderMember((await findMember(database, session, parameters.id))!)
  })

  router.at(memberContracts.removeMember).answer(async (call) => {
    const { session, parameters } = call
    requireRecentSignIn(session)
    await remove(call, parameters.id, 'member_removed')
    return undefined
  })

  router.at(memberContracts.leaveAccount).answer(async (call) => {
    const { session, setHeader } = call
    await remove(call, session.personId, 'member_left')
    setHeader('set-cookie', clearedCookie(site))
    return undefined
  })

  router.at(memberContracts.updatePerson).answer(async ({ session, body }) => {
    await renamePerson(database, session.personId, body.name)
    return undefined
  })

  router.at(memberContracts.switchAccount).answer(async ({ session, body }) => {
    if ((await switchAccount(database, session, body.account_id)) === undefined) throw new NotFoundError()
    return undefined
  })

  router.at(memberContracts.listAccountLog).answer(async ({ owner, query }) => {
    const { rows, next } = await pageOf(query, (below) => readAccountLog(database, owner, below))
    return { object: 'list', data: rows.map(renderLogRow), has_more: next !== null, next_cursor: next }
  })

  async function remove(
    call: Call<typeof memberContracts.removeMember | typeof memberContracts.leaveAccount>,
    personId: string,
    event: 'member_removed' | 'member_left',
  ): Promise<void> {
    const { session } = call
    const { changedKeyIds } = await database.transaction(async (connection) => {
      const { session: by } = await call.lockAccess(connection)
      const removed = await removeMember(connection, session, {
        by,
        personId,
        ownerCooldownMs: ownerCooldownMs(services),
      })
      await logRevokedSecrets(connection, call, removed)
      const { name, role } = removed.member
      await logAccountEvent({ ...services, database: connection }, event, call, { member_id: personId, name, role })
      return removed
    })
    for (const keyId of changedKeyIds) finder.forget(keyId)
  }

  /** Owners of keys look here for why a key that they did not touch has stopped working. */
  async function logRevokedSecrets(connection: Connection, actor: Actor, { ofOthers }: RevokedSecrets): Promise<void> {
    const logged = { ...services, database: connection }
    for (const { kind, id, name, changed } of ofOthers) {
      if (kind === 'management_key')
        await logAccountEvent(logged, 'management_key_revoked', actor, { management_key_id: id, name })
      else if (changed === undefined) await logAccountEvent(logged, 'key_revoked', actor, { key_id: id, name })
      else await logAccountEvent(logged, 'key_changed', actor, { key_id: id, name, changed })
    }
  }
}

export function renderMember(member: Member): AnswerOf<typeof memberContracts.updateMember> {
  return {
    object: 'member',
    id: member.personId,
    name: member.name,
    role: member.role,
    ...renderLimit(member),
    joined_at: member.joinedAt.toISOString(),
    last_active_at: member.lastActiveAt?.toISOString() ?? null,
  }
}

export function renderLimit({ limit, limitWindow }: { limit: Usdc | undefined; limitWindow: LimitWindow }) {
  return {
    limit_atomic: limit?.toString() ?? null,
    limit: limit === undefined ? null : format(limit),
    limit_window: limitWindow,
  }
}

export function renderLogRow({
  id,
  event,
  actor,
  facts,
  createdAt,
}: LogRow): AnswerOf<typeof memberContracts.listAccountLog>['data'][number] {
  return {
    object: 'log_entry',
    id,
    event,
    actor: { kind: actor.kind, id: actor.id ?? null, name: actor.name ?? null },
    method: actor.method ?? null,
    network: actor.network ?? null,
    facts: { ...facts },
    created_at: createdAt.toISOString(),
  }
}
