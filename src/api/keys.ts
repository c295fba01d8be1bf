import type { AccountRef } from '../db/account-ref.ts'
import type { Connection } from '../db/database.ts'
import {
  type ApiKey,
  createKey,
  findKey,
  type KeyChanges,
  KeyRevokedForGoodError,
  listKeys,
  type NewApiKey,
  refuseManyKeys,
  revokeKey,
  rotateKey,
  updateKey,
  X402KeyError,
} from '../identity/api-keys.ts'
import type { OptionChanges } from '../identity/key-options.ts'
import { readBalance } from '../ledger/balance.ts'
import { listRequests } from '../ledger/request-log.ts'
import { noMeasures, readRefusals, readUsage, type UsageStep } from '../ledger/usage.ts'
import { moneyFields } from '../money/money-fields.ts'
import { format, fromAtomic, max, parse, type Usdc, zero } from '../money/usdc.ts'
import type { AnswerOf, BodyOf } from '../openapi/contract.ts'
import { keyContracts } from '../openapi/contracts/keys.ts'
import { unusable } from '../openapi/input-refusal.ts'
import type { DepositAddresses } from './deposit-addresses.ts'
import { type Actor, logAccountEvent } from './log-account-event.ts'
import { renderRequest } from './render-request.ts'
import { type ApiRouter, type Call, NotFoundError } from './router.ts'
import type { ApiServices } from './services.ts'
import { requestsOf } from './usage.ts'

type RenderedKey = AnswerOf<typeof keyContracts.updateKey>

const recentMax = 10
const spendDaysMax = 30
const dayMs = 86_400_000

/** API keys. Only the response that creates or rotates a key contains its secret. */
export function routeKeys(router: ApiRouter, services: ApiServices, addresses: DepositAddresses): void {
  const { database, keys: finder, models } = services

  router.at(keyContracts.getOwnKey).answer(async ({ owner, visitor }) => {
    const [key, balance] = await Promise.all([ownKey({ owner }, owner.keyId), readBalance(database, owner)])
    const address = await assignAddress(services, addresses, { owner, visitor })
    return { ...renderKey(key), ...moneyFields({ available: balance.available }), deposit_address: address }
  })

  router.at(keyContracts.listKeys).answer(async ({ owner, keysMadeBy }) => {
    const keys = await listKeys(database, owner.accountId, keysMadeBy)
    return { object: 'list', data: keys.map(renderKey), has_more: false, next_cursor: null }
  })

  router.at(keyContracts.createKey).answer(async (call) => {
    return issueKey(services, addresses, call, call.body)
  })

  router.at(keyContracts.getKey).answer(async (call) => {
    const { owner, parameters } = call
    const key = await ownKey(call, parameters.id)
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
    const { parameters, body } = call
    const key = await ownKey(call, parameters.id)
    const changes: KeyChanges = {
      name: body.name,
      limit: readLimit(body.limit),
      limitWindow: body.limit_window,
      expiresAt: readExpiry(body.expires_at),
      disabled: body.disabled,
      options: readOptions(body, [...models.ids, ...key.options.allowedModels]),
    }
    if (statusOf(key) === 'revoked') throw new KeyRevokedForGoodError()
    const limit = changes.limit === undefined ? {} : { limit: changes.limit?.toString() ?? null }
    const facts = { key_id: key.id, name: key.name, changed: Object.keys(body), ...limit }
    await updateKey(database, key.id, changes, async (connection) => {
      await lockKey(connection, call)
      await logAccountEvent({ ...services, database: connection }, 'key_changed', call, facts)
    })
    finder.forget(key.id)
    return renderKey(await ownKey(call, key.id))
  })

  router.at(keyContracts.rotateKey).answer(async (call) => {
    const { parameters, body, session } = call
    const key = await ownKey(call, parameters.id)
    if (statusOf(key) === 'revoked') throw new KeyRevokedForGoodError()
    const facts = { key_id: key.id, name: key.name }
    const rotation = { overlapSeconds: body.overlap_seconds, knownTo: session?.personId }
    const rotated = await rotateKey(database, key.id, rotation, async (connection) => {
      await lockKey(connection, call)
      await logAccountEvent({ ...services, database: connection }, 'key_rotated', call, facts)
    })
    finder.forget(key.id)
    return { ...renderKey(await ownKey(call, key.id)), secret: rotated!.secret }
  })

  router.at(keyContracts.revokeKey).answer(async (call) => {
    const key = await ownKey(call, call.parameters.id)
    // Idempotent: a second call changes nothing and is not logged again.
    if (statusOf(key) === 'revoked') return renderKey(key)
    if (key.isX402) throw new X402KeyError()
    const facts = { key_id: key.id, name: key.name }
    await revokeKey(database, key.id, async (connection) => {
      await lockKey(connection, call)
      await logAccountEvent({ ...services, database: connection }, 'key_revoked', call, facts)
    })
    return renderKey(await ownKey(call, key.id))
  })

  /** The caller may have been removed or demoted since `ownKey`. */
  async function lockKey(connection: Connection, call: KeyChange): Promise<void> {
    const { keysMadeBy } = await call.lockAccess(connection)
    if ((await findKey(connection, call.owner, call.parameters.id, keysMadeBy)) === undefined) throw new NotFoundError()
  }

  async function ownKey({ owner, keysMadeBy }: KeyOwner, id: string): Promise<ApiKey> {
    const key = await findKey(database, owner, id, keysMadeBy)
    if (key === undefined) throw new NotFoundError()
    return key
  }
}

/** `keysMadeBy` limits the caller to the keys of one member. */
type KeyOwner = { readonly owner: AccountRef; readonly keysMadeBy?: string | undefined }

type KeyChange = Pick<Call<typeof keyContracts.updateKey>, 'owner' | 'parameters' | 'lockAccess'>

type KeyTerms = BodyOf<typeof keyContracts.createKey>

/** `madeBy` for a login that the person has confirmed before: there is no session, and so nothing to authorize again. */
type KeyMaker = Actor & {
  readonly madeBy?: string | undefined
  readonly lockAccess?: (connection: Connection) => Promise<unknown>
}

/** Creates a key for the signed-in person or `madeBy`. Only this response contains the secret. */
export async function issueKey(
  services: ApiServices,
  addresses: DepositAddresses,
  actor: KeyMaker,
  terms: KeyTerms,
): Promise<AnswerOf<typeof keyContracts.createKey>> {
  const { owner } = actor
  const key = { ...(await checkNewKey(services, owner, terms)), madeBy: actor.madeBy ?? actor.session?.personId }
  const { id, secret } = await createKey(services.database, key, async (connection, keyId) => {
    await actor.lockAccess?.(connection)
    const facts = { key_id: keyId, name: key.name }
    await logAccountEvent({ ...services, database: connection }, 'key_created', actor, facts)
  })
  // A 402 response names the deposit address, so that programs without money can find it.
  await assignAddress(services, addresses, actor)
  return { ...renderKey((await findKey(services.database, owner, id))!), secret }
}

/** Null when it fails, for example while the signer is down: a key works without a deposit address. */
async function assignAddress(
  { log }: Pick<ApiServices, 'log'>,
  addresses: DepositAddresses,
  { owner, visitor }: Pick<Actor, 'owner' | 'visitor'>,
): Promise<string | null> {
  return addresses.findOrCreate(owner, visitor).catch((error: unknown) => {
    log.warn({ err: error }, 'deposit address could not be assigned')
    return null
  })
}

/** Throws when a key with these terms cannot be created. */
export async function checkNewKey(
  { database, models }: ApiServices,
  owner: AccountRef,
  terms: KeyTerms,
): Promise<NewApiKey> {
  await refuseManyKeys(database, owner)
  return {
    partition: owner.partition,
    accountId: owner.accountId,
    name: terms.name,
    limit: readLimit(terms.limit) ?? undefined,
    limitWindow: terms.limit_window,
    expiresAt: readFutureExpiry(terms.expires_at),
    options: readOptions(terms, models.ids),
  }
}

export function renderKey(key: ApiKey): RenderedKey {
  const remaining = key.limit === undefined ? undefined : max(zero, fromAtomic(key.limit - key.spent - key.held))
  return {
    object: 'key',
    id: key.id,
    name: key.name,
    hint: key.hint,
    is_x402: key.isX402,
    status: statusOf(key),
    limit_atomic: key.limit?.toString() ?? null,
    limit: key.limit === undefined ? null : format(key.limit),
    remaining_atomic: remaining?.toString() ?? null,
    remaining: remaining === undefined ? null : format(remaining),
    limit_window: key.limitWindow,
    ...moneyFields({ spent: key.spent, held: key.held }),
    allowed_models: [...key.options.allowedModels],
    max_request_cost_atomic: key.options.maxRequestCost?.toString() ?? null,
    max_request_cost: key.options.maxRequestCost === undefined ? null : format(key.options.maxRequestCost),
    web_tools: key.options.webTools,
    allowed_ips: [...key.options.allowedIps],
    resets_at: key.resetsAt?.toISOString() ?? null,
    expires_at: key.expiresAt?.toISOString() ?? null,
    revoked_at: key.revokedAt?.toISOString() ?? null,
    last_used_at: key.lastUsedAt?.toISOString() ?? null,
    created_at: key.createdAt.toISOString(),
    made_by: key.madeBy ?? null,
    old_secrets: key.oldSecrets.map(({ hint, worksUntil }) => ({ hint, works_until: worksUntil.toISOString() })),
  }
}

function statusOf(key: ApiKey): RenderedKey['status'] {
  if (key.disabled) return 'disabled'
  if (key.revokedAt !== undefined) return 'revoked'
  return key.expired ? 'expired' : 'active'
}

/** An amount of USDC; null removes a limit. */
export function readLimit(limit: string | null | undefined): Usdc | null | undefined {
  return typeof limit === 'string' ? parse(limit) : limit
}

type OptionsBody = {
  readonly allowed_models?: readonly string[] | undefined
  readonly max_request_cost?: string | null | undefined
  readonly web_tools?: boolean | undefined
  readonly allowed_ips?: readonly string[] | undefined
}

/** Throws for an unknown model: a typo would silently refuse every request. */
function readOptions(body: OptionsBody, models: readonly string[]): OptionChanges {
  const unknown = body.allowed_models?.find((model) => !models.includes(model))
  if (unknown !== undefined) {
    throw unusable('allowed_models', `unknown model "${unknown}". The models are ${models.join(', ')}`)
  }
  return {
    allowedModels: body.allowed_models && [...new Set(body.allowed_models)],
    maxRequestCost: readLimit(body.max_request_cost),
    webTools: body.web_tools,
    allowedIps: body.allowed_ips && [...new Set(body.allowed_ips)],
  }
}

const expiryMsMax = Date.parse('9999-01-01T00:00:00Z')

export function readExpiry(instant: string | null | undefined): Date | null | undefined {
  if (typeof instant !== 'string') return instant
  const expiry = new Date(instant)
  if (expiry.getTime() < expiryMsMax) return expiry
  throw unusable('expires_at', 'it must be an instant before the year 9999')
}

/** For new keys. An existing key may get a past expiry, which ends it immediately; a new one would never work. */
export function readFutureExpiry(instant: string | null | undefined): Date | undefined {
  const expiry = readExpiry(instant) ?? undefined
  if (expiry === undefined || expiry.getTime() > Date.now()) return expiry
  throw unusable('expires_at', 'it is in the past')
}

type Span = { readonly from: Date; readonly to: Date }

/** Adds the idle days, which the ledger does not return. */
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
