import type { AccountRef } from '../../account-ref.ts'
import { ServiceError } from '../../errors.ts'
import {
  type ApiKey,
  createKey,
  findKey,
  type KeyChanges,
  keysPerAccountMax,
  listKeys,
  revokeKey,
  rollKey,
  updateKey,
} from '../../identity/api-keys.ts'
import { readBalance } from '../../ledger/balance.ts'
import { listRequests } from '../../ledger/request-log.ts'
import { noMeasures, readRefusals, readUsage, type UsageStep } from '../../ledger/usage.ts'
import { moneyFields } from '../../money/money-fields.ts'
import { format, fromAtomic, max, parse, type Usdc, zero } from '../../money/usdc.ts'
import type { AnswerOf } from './contract.ts'
import { keyContracts } from './contracts/keys.ts'
import { unusable } from './input-refusal.ts'
import { renderRequest } from './render-request.ts'
import { type ApiRouter, NotFoundError } from './router.ts'
import type { ApiServices } from './services.ts'
import { leaveTrail } from './trail.ts'
import { requestsOf } from './usage.ts'

type RenderedKey = AnswerOf<typeof keyContracts.updateKey>

const recentMax = 10
const spendDaysMax = 30
const dayMs = 86_400_000

/** API keys. The secret of one is in the answer that makes it, and in no other. */
export function routeKeys(router: ApiRouter, services: ApiServices): void {
  const { database, keys: finder } = services

  router.at(keyContracts.getOwnKey).answer(async ({ owner }) => {
    const [key, balance] = await Promise.all([ownKey(owner, owner.keyId), readBalance(database, owner)])
    return { ...renderKey(key), ...moneyFields({ available: balance.available }) }
  })

  router.at(keyContracts.listKeys).answer(async ({ owner }) => {
    const keys = await listKeys(database, owner.accountId)
    return { object: 'list', data: keys.map(renderKey), has_more: false, next_cursor: null }
  })

  router.at(keyContracts.createKey).answer(async (call) => {
    const { owner, body } = call
    if ((await listKeys(database, owner.accountId)).length >= keysPerAccountMax) throw new TooManyKeysError()
    const { id, secret } = await createKey(database, {
      ...owner,
      name: body.name,
      limit: readLimit(body.limit) ?? undefined,
      limitWindow: body.limit_window,
      expiresAt: readFutureExpiry(body.expires_at),
    })
    leaveTrail(services, 'key_created', call, { key_id: id })
    return { ...renderKey(await ownKey(owner, id)), secret }
  })

  router.at(keyContracts.getKey).answer(async ({ owner, parameters }) => {
    const key = await ownKey(owner, parameters.id)
    const span = lastDays()
    const [refusals, steps, recent] = await Promise.all([
      readRefusals(database, owner, key.id),
      readUsage(database, owner, { ...span, granularity: 'day', keyIds: [key.id] }, 'none'),
      listRequests(database, owner, { keyIds: [key.id] }, { limit: recentMax }),
    ])
    return {
      ...renderKey(key),
      refusals: refusals.map(({ code, count, lastAt }) => ({ code, count, last_at: lastAt.toISOString() })),
      spend_by_day: everyDay(span, steps).map(({ start, measures }) => ({
        day: start.toISOString().slice(0, 10),
        ...moneyFields({ spend: measures.charged }),
        requests: requestsOf(measures),
      })),
      recent: recent.rows.map(renderRequest),
    }
  })

  router.at(keyContracts.updateKey).answer(async (call) => {
    const { owner, parameters, body } = call
    const key = await ownKey(owner, parameters.id)
    const changes: KeyChanges = {
      name: body.name,
      limit: readLimit(body.limit),
      limitWindow: body.limit_window,
      expiresAt: readExpiry(body.expires_at),
      disabled: body.disabled,
    }
    if (statusOf(key) === 'revoked') throw new KeyRevokedForGoodError()
    await updateKey(database, key.id, changes)
    const limit = changes.limit === undefined ? {} : { limit: changes.limit?.toString() ?? null }
    leaveTrail(services, 'key_changed', call, { key_id: key.id, changed: Object.keys(body), ...limit })
    return renderKey(await ownKey(owner, key.id))
  })

  router.at(keyContracts.rollKey).answer(async (call) => {
    const { owner, parameters, body } = call
    const key = await ownKey(owner, parameters.id)
    if (statusOf(key) === 'revoked') throw new KeyRevokedForGoodError()
    const { secret } = (await rollKey(database, key.id, body.overlap_seconds))!
    finder.forget(key.id)
    leaveTrail(services, 'key_rolled', call, { key_id: key.id })
    return { ...renderKey(await ownKey(owner, key.id)), secret }
  })

  router.at(keyContracts.revokeKey).answer(async (call) => {
    const { owner, parameters } = call
    const key = await ownKey(owner, parameters.id)
    await revokeKey(database, key.id)
    leaveTrail(services, 'key_revoked', call, { key_id: key.id })
    return renderKey(await ownKey(owner, key.id))
  })

  async function ownKey(owner: AccountRef, id: string): Promise<ApiKey> {
    const key = await findKey(database, owner, id)
    if (key === undefined) throw new NotFoundError()
    return key
  }
}

export function renderKey(key: ApiKey): RenderedKey {
  const remaining = key.limit === undefined ? undefined : max(zero, fromAtomic(key.limit - key.spent - key.held))
  return {
    object: 'key',
    id: key.id,
    name: key.name,
    hint: key.hint,
    status: statusOf(key),
    limit_atomic: key.limit?.toString() ?? null,
    limit: key.limit === undefined ? null : format(key.limit),
    remaining_atomic: remaining?.toString() ?? null,
    remaining: remaining === undefined ? null : format(remaining),
    limit_window: key.limitWindow,
    ...moneyFields({ spent: key.spent, held: key.held }),
    resets_at: key.resetsAt?.toISOString() ?? null,
    expires_at: key.expiresAt?.toISOString() ?? null,
    revoked_at: key.revokedAt?.toISOString() ?? null,
    last_used_at: key.lastUsedAt?.toISOString() ?? null,
    created_at: key.createdAt.toISOString(),
    old_secrets: key.oldSecrets.map(({ hint, worksUntil }) => ({ hint, works_until: worksUntil.toISOString() })),
  }
}

function statusOf(key: ApiKey): RenderedKey['status'] {
  if (key.disabled) return 'disabled'
  if (key.revokedAt !== undefined) return 'revoked'
  return key.expired ? 'expired' : 'active'
}

function readLimit(limit: string | null | undefined): Usdc | null | undefined {
  return typeof limit === 'string' ? parse(limit) : limit
}

const expiryMsMax = Date.parse('9999-01-01T00:00:00Z')

function readExpiry(instant: string | null | undefined): Date | null | undefined {
  if (typeof instant !== 'string') return instant
  const expiry = new Date(instant)
  if (expiry.getTime() < expiryMsMax) return expiry
  throw unusable('expires_at', 'it must be an instant before the year 9999')
}

/** An old key may be given an end in the past, which ends it now; a new one would never have worked. */
function readFutureExpiry(instant: string | null | undefined): Date | undefined {
  const expiry = readExpiry(instant) ?? undefined
  if (expiry === undefined || expiry.getTime() > Date.now()) return expiry
  throw unusable('expires_at', 'it is in the past, so the key would never work')
}

type Span = { readonly from: Date; readonly to: Date }

/** The ledger tells of days on which something happened; the idle ones between them are days too. */
function everyDay({ from, to }: Span, steps: readonly UsageStep[]): readonly Pick<UsageStep, 'start' | 'measures'>[] {
  const known = new Map(steps.map(({ start, measures }) => [start.getTime(), measures]))
  return Array.from({ length: (to.getTime() - from.getTime()) / dayMs }, (_, index) => {
    const start = new Date(from.getTime() + index * dayMs)
    return { start, measures: known.get(start.getTime()) ?? noMeasures }
  })
}

function lastDays(): Span {
  const today = Math.floor(Date.now() / dayMs) * dayMs
  return { from: new Date(today - (spendDaysMax - 1) * dayMs), to: new Date(today + dayMs) }
}

export class TooManyKeysError extends ServiceError {
  readonly code = 'invalid_value'
  constructor() {
    super(`The account has ${keysPerAccountMax} keys, which is the most it can have.`)
  }
}

export class KeyRevokedForGoodError extends ServiceError {
  readonly code = 'invalid_value'
  constructor() {
    super('This key was revoked for good and cannot be changed. Make another one.')
  }
}
