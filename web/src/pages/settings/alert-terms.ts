import type { Account, AlertRule } from '../../api/shapes.ts'
import { amountError, isAmount } from '../../money/format.ts'

// Alert rules: conversion between form fields, the API's input, and text.

export function alertWords({ balance_below, days_below }: Account['alerts']): string {
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

/** The rules of the alerts panel: label and unit. */
export const ruleWords: Readonly<Record<AlertRule['kind'], readonly [label: string, unit: string]>> = {
  balance_below: ['The balance falls below', 'USDC'],
  days_left: ['At the rate of the last 7 days, the balance lasts less than', 'days'],
  spend_hour: ['Spend in an hour reaches', 'USDC'],
  spend_day: ['Spend in a day (UTC) reaches', 'USDC'],
  spend_unusual: ['Spend in an hour is far above usual', 'times'],
  key_limit: ['A key is near its limit', '%'],
  error_rate: ['Requests fail or are refused', '%'],
  settlement_stuck: ['Settlement of your requests is stuck', 'minutes'],
  withdrawal_stuck: ['A withdrawal is stuck', 'minutes'],
  balance_empty: ['The balance is empty', ''],
  webhook_disabled: ['A webhook was disabled', ''],
}

/** As typed. */
export type RuleForm = { readonly enabled: boolean; readonly threshold: string }

export function ruleFormOf({ enabled, threshold }: AlertRule): RuleForm {
  return { enabled, threshold: threshold ?? '' }
}

export function ruleProblem({ unit }: AlertRule, { enabled, threshold }: RuleForm): string | undefined {
  if (!enabled || unit === 'none') return undefined
  if (unit === 'usdc') return isAmount(threshold) ? undefined : amountError
  return /^[1-9]\d{0,4}$/.test(threshold) ? undefined : 'Enter a whole number above 0.'
}

/** What to send; undefined when nothing changed. */
export function ruleBody(rule: AlertRule, form: RuleForm) {
  const { enabled, threshold } = form
  const isSame = enabled === rule.enabled && (!enabled || threshold === (rule.threshold ?? ''))
  if (isSame) return undefined
  return enabled && rule.unit !== 'none' ? { enabled, threshold } : { enabled }
}
