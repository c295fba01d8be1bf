import type { Account, AlertRule } from '../../api/shapes.ts'
import { isAmount } from '../keys/key-terms.ts'

// Below what the holder is warned: between what a form holds, what the service takes, and words.

type Alerts = Account['alerts']

/** As typed; empty is no warning. */
export type AlertForm = { readonly balance: string; readonly days: string }
export type AlertErrors = { readonly balance?: string; readonly days?: string }

const daysMax = 365

export function alertFormOf({ balance_below, days_below }: Alerts): AlertForm {
  return { balance: balance_below ?? '', days: days_below?.toString() ?? '' }
}

export function checkAlerts({ balance, days }: AlertForm): AlertErrors {
  return {
    ...(balance !== '' &&
      !isAmount(balance) && { balance: 'Enter an amount above 0 USDC with at most six decimals, such as 2.50.' }),
    ...(days !== '' &&
      !(/^\d{1,3}$/.test(days) && Number(days) >= 1 && Number(days) <= daysMax) && {
        days: `Enter a whole number of days from 1 to ${daysMax}.`,
      }),
  }
}

export function alertsBody({ balance, days }: AlertForm) {
  return { balance_below: balance === '' ? null : balance, days_below: days === '' ? null : Number(days) }
}

export function alertWords({ balance_below, days_below }: Alerts): string {
  const limits = [
    ...(balance_below === null ? [] : [`the balance falls below ${balance_below} USDC`]),
    ...(days_below === null
      ? []
      : [
          `less than ${days_below} ${days_below === 1 ? 'day' : 'days'} of balance ${days_below === 1 ? 'remains' : 'remain'}`,
        ]),
  ]
  return limits.length === 0 ? 'Low-balance warnings are off.' : `We’ll warn you when ${limits.join(' or ')}.`
}

/** The rules of the alerts panel: what is asked, and the unit. */
export const ruleWords = {
  spend_hour: ['Spend in an hour reaches', 'USDC'],
  spend_day: ['Spend in a day (UTC) reaches', 'USDC'],
  spend_unusual: ['Spend in an hour is far above usual', 'times'],
  key_limit: ['A key is near its limit', '%'],
  error_rate: ['Requests fail or are refused', '%'],
  settlement_stuck: ['Settlement of your requests is stuck', 'minutes'],
  withdrawal_stuck: ['A withdrawal is stuck', 'minutes'],
  balance_empty: ['The balance is empty', ''],
  webhook_disabled: ['A webhook was disabled', ''],
} as const satisfies Partial<Record<AlertRule['kind'], readonly [label: string, unit: string]>>

/** As typed. */
export type RuleForm = { readonly enabled: boolean; readonly threshold: string }

export function ruleFormOf({ enabled, threshold }: AlertRule): RuleForm {
  return { enabled, threshold: threshold ?? '' }
}

export function ruleProblem({ unit }: AlertRule, { enabled, threshold }: RuleForm): string | undefined {
  if (!enabled || unit === 'none') return undefined
  if (unit === 'usdc') return isAmount(threshold) ? undefined : 'Enter an amount above 0 USDC.'
  return /^[1-9]\d{0,4}$/.test(threshold) ? undefined : 'Enter a whole number above 0.'
}

/** What to send; undefined when nothing changed. */
export function ruleBody(rule: AlertRule, form: RuleForm) {
  const { enabled, threshold } = form
  const isSame = enabled === rule.enabled && (!enabled || threshold === (rule.threshold ?? ''))
  if (isSame) return undefined
  return enabled && rule.unit !== 'none' ? { enabled, threshold } : { enabled }
}
