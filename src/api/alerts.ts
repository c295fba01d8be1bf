import { type Alert, evaluateAccounts, listAlerts } from '../alerts/alerts.ts'
import { readEmail, removeEmail, setEmail, verifyEmail } from '../alerts/emails.ts'
import { type AlertRule, alertKinds } from '../alerts/kinds.ts'
import { readRules, setRule } from '../alerts/rules.ts'
import type { AccountRef } from '../db/account-ref.ts'
import { format, fromAtomic, parse } from '../money/usdc.ts'
import type { AnswerOf, BodyOf } from '../openapi/contract.ts'
import { alertContracts } from '../openapi/contracts/alerts.ts'
import { unusable } from '../openapi/input-refusal.ts'
import { logAccountEvent } from './log-account-event.ts'
import { type ApiRouter, NotFoundError } from './router.ts'
import type { ApiServices } from './services.ts'

type RenderedAlert = AnswerOf<typeof alertContracts.listAlerts>['data'][number]
type RenderedRule = AnswerOf<typeof alertContracts.setAlertRule>
type RenderedEmail = AnswerOf<typeof alertContracts.getAlertEmail>
type RuleBody = BodyOf<typeof alertContracts.setAlertRule>

/** Alerts of an account, their rules, and the address for mail. */
export function routeAlerts(router: ApiRouter, services: ApiServices): void {
  const { database, site, sendsMail } = services

  router.at(alertContracts.listAlerts).answer(async ({ owner, keysMadeBy }) => {
    const alerts = await listAlerts(database, owner, 'all', keysMadeBy)
    return { object: 'list', data: alerts.map(renderAlert), has_more: false, next_cursor: null }
  })

  router.at(alertContracts.listAlertRules).answer(async ({ owner }) => {
    const rules = await readRules(database, owner)
    return { object: 'list', data: rules.map(renderRule), has_more: false, next_cursor: null }
  })

  router.at(alertContracts.setAlertRule).answer(async (call) => {
    const { owner, body } = call
    const { kind } = call.parameters
    const rule = { kind, ...levelsOf(kind, body) }
    await database.transaction(async (connection) => {
      await setRule(connection, owner, rule)
      await logAccountEvent({ ...services, database: connection }, 'account_changed', call, { changed: ['alerts'] })
    })
    // Evaluated now, so that the result is visible before the next run of the job.
    await evaluateAccounts(database, owner.partition, [owner.accountId])
    return renderRule({ ...rule, isInitial: false })
  })

  router.at(alertContracts.getAlertEmail).answer(({ owner }) => renderEmail(owner))

  router.at(alertContracts.setAlertEmail).answer(async (call) => {
    const { owner, body } = call
    if (!sendsMail) throw unusable('address', 'this service does not send mail')
    await database.transaction(async (connection) => {
      const linkOf = (token: string) => `${site.publicUrl}/settings?verify-email=${token}#alerts`
      await setEmail(connection, owner, body.address, linkOf)
      await logAccountEvent({ ...services, database: connection }, 'alert_email_set', call, { name: body.address })
    })
    return renderEmail(owner)
  })

  router.at(alertContracts.removeAlertEmail).answer(async (call) => {
    await database.transaction(async (connection) => {
      const name = await removeEmail(connection, call.owner)
      if (name === undefined) return
      await logAccountEvent({ ...services, database: connection }, 'alert_email_removed', call, { name })
    })
    return undefined
  })

  router.at(alertContracts.verifyAlertEmail).answer(async (call) => {
    const { owner, body } = call
    await database.transaction(async (connection) => {
      const name = await verifyEmail(connection, owner, body.token)
      if (name === undefined) throw new NotFoundError()
      await logAccountEvent({ ...services, database: connection }, 'alert_email_confirmed', call, { name })
    })
    return renderEmail(owner)
  })

  async function renderEmail(owner: AccountRef): Promise<RenderedEmail> {
    const email = await readEmail(database, owner)
    return {
      object: 'alert_email',
      available: sendsMail,
      address: email?.address ?? null,
      verified_at: email?.verifiedAt?.toISOString() ?? null,
    }
  }
}

function levelsOf(
  kind: AlertRule['kind'],
  { enabled, threshold, rearm }: RuleBody,
): Pick<AlertRule, 'threshold' | 'rearm'> {
  const { unit, max, fires, rearm: usualRearm } = alertKinds[kind]
  if (!enabled) return { threshold: undefined, rearm: undefined }
  if (unit === 'none') return { threshold: 1n, rearm: 1n }
  if (threshold === undefined) throw unusable('threshold', 'it is required to turn the rule on')
  const level = readLevel('threshold', unit, threshold)
  if (level < 1n || level > max) throw unusable('threshold', `it must be above 0 and at most ${renderLevel(unit, max)}`)
  const rearmLevel = rearm === undefined ? usualRearm(level) : readLevel('rearm', unit, rearm)
  if (fires === 'below' ? rearmLevel < level : rearmLevel > level)
    throw unusable('rearm', `it must be ${fires === 'below' ? 'at least' : 'at most'} the threshold`)
  return { threshold: level, rearm: rearmLevel }
}

function readLevel(name: string, unit: RenderedRule['unit'], text: string): bigint {
  if (unit === 'usdc') return parse(text)
  if (!/^\d+$/.test(text)) throw unusable(name, `it must be a whole number of ${unit}`)
  return BigInt(text)
}

function renderLevel(unit: RenderedRule['unit'], level: bigint): string {
  return unit === 'usdc' ? format(fromAtomic(level)) : level.toString()
}

export function renderRule({ kind, threshold, rearm, isInitial }: AlertRule): RenderedRule {
  const { unit, fires } = alertKinds[kind]
  return {
    object: 'alert_rule',
    kind,
    unit,
    fires,
    enabled: threshold !== undefined,
    threshold: threshold === undefined ? null : renderLevel(unit, threshold),
    rearm: rearm === undefined ? null : renderLevel(unit, rearm),
    initial: isInitial,
  }
}

function renderAlert(alert: Alert): RenderedAlert {
  return {
    object: 'alert',
    kind: alert.kind,
    subject: alert.subject === '' ? null : alert.subject,
    level: alert.level,
    message: alert.message,
    href: alertHref(alert),
    fired_at: alert.firedAt.toISOString(),
    resolved_at: alert.resolvedAt?.toISOString() ?? null,
  }
}

/** The dashboard page with the details. */
export function alertHref({ kind, subject }: Pick<Alert, 'kind' | 'subject'>): string {
  switch (kind) {
    case 'key_limit':
      return `/keys/${subject}`
    case 'webhook_disabled':
      return '/settings#webhooks'
    case 'spend_hour':
    case 'spend_day':
    case 'spend_unusual':
      return '/usage'
    case 'error_rate':
      return '/requests'
    default:
      return '/funds'
  }
}
