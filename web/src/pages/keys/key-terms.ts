import type { Key } from '../../api/shapes.ts'

// A key's limit, window and expiry: between what a form holds and what the service takes.

export type Window = Key['limit_window']
/** `keep` is for a key that there is: its expiry stays as it is, to the second, and is not sent. */
export type ExpiryChoice = 'keep' | 'none' | '7' | '30' | '90' | 'date'

export type TermsForm = {
  readonly name: string
  /** USDC as typed; empty is no limit. */
  readonly limit: string
  readonly window: Window
  readonly expiry: ExpiryChoice
  /** `YYYY-MM-DD`, with the choice `date`. */
  readonly date: string
}

export const emptyTerms: TermsForm = { name: '', limit: '', window: 'lifetime', expiry: 'none', date: '' }

export const windowWords: Readonly<Record<Window, readonly [choice: string, period: string]>> = {
  lifetime: ['Never', 'in total'],
  day: ['Daily, at 00:00 UTC', 'today (UTC)'],
  week: ['Weekly, Monday 00:00 UTC', 'this week (UTC)'],
  month: ['Monthly, on the 1st, 00:00 UTC', 'this month (UTC)'],
}

export type TermsErrors = { readonly name?: string; readonly limit?: string; readonly date?: string }

export function checkTerms(form: TermsForm, nowMs: number): TermsErrors {
  return {
    ...(form.name.trim() === '' && { name: 'Give the key a name.' }),
    ...(form.limit !== '' &&
      !isAmount(form.limit) && { limit: 'Enter an amount above 0 USDC with at most six decimals, such as 2.50.' }),
    ...(form.expiry === 'date' &&
      !(Date.parse(endOfDay(form.date)) > nowMs) && { date: 'Choose a day that is not in the past.' }),
  }
}

export function termsBody(form: TermsForm, nowMs: number) {
  return {
    name: form.name.trim(),
    limit: form.limit === '' ? null : form.limit,
    limit_window: form.limit === '' ? ('lifetime' as const) : form.window,
    ...(form.expiry !== 'keep' && { expires_at: expiryOf(form, nowMs) }),
  }
}

/** The form of a key as it is now. */
export function termsOf(key: Pick<Key, 'name' | 'limit' | 'limit_window'>): TermsForm {
  return {
    name: key.name,
    limit: key.limit ?? '',
    window: key.limit_window,
    expiry: 'keep',
    date: '',
  }
}

export function isAmount(text: string): boolean {
  return /^\d{1,12}(\.\d{1,6})?$/.test(text) && /[1-9]/.test(text)
}

function expiryOf({ expiry, date }: TermsForm, nowMs: number): string | null {
  if (expiry === 'none') return null
  if (expiry === 'date') return endOfDay(date)
  return new Date(nowMs + Number(expiry) * 86_400_000).toISOString()
}

/** A key that expires on a day works through that day, in UTC. */
function endOfDay(date: string): string {
  return `${date}T23:59:59.999Z`
}
