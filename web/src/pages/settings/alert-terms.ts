import type { Account } from '../../api/shapes.ts'
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
