import { changedFields } from '../../api/changed-fields.ts'
import type { Key } from '../../api/shapes.ts'
import { amountError, isAmount } from '../../money/format.ts'

// A key's limit, window, expiry and restrictions: conversion between form fields and the API's input.

/** What a failed creation says when its answer was lost. */
export const ifKeyMade =
  'The key may have been created, but its secret cannot be shown any more. If it is in the list of keys, revoke it before you create another.'

/** What a failed rotation says when its answer was lost. */
export const ifKeyRotated =
  'The key may have been rotated. Its new secret cannot be shown any more, and the old secret may stop working. Rotate the key again to get a new secret.'

/** When an old secret ends after a rotation: seconds, and how a form says it. */
export const overlaps = [
  ['0', 'Immediately'],
  ['3600', 'After 1 hour'],
  ['86400', 'After 24 hours'],
  ['604800', 'After 7 days'],
] as const
export type Overlap = (typeof overlaps)[number][0]

export type Window = Key['limit_window']
/** `keep` is for an existing key: its expiry does not change and is not sent. */
export type ExpiryChoice = 'keep' | 'none' | '7' | '30' | '90' | 'date'

export type TermsForm = {
  readonly name: string
  /** USDC as typed; empty is no limit. */
  readonly limit: string
  readonly window: Window
  readonly expiry: ExpiryChoice
  /** `YYYY-MM-DD`, with the choice `date`. */
  readonly date: string
  readonly modelChoice: 'all' | 'some'
  /** With the choice `some`. */
  readonly models: readonly string[]
  /** USDC as typed; empty is no cap. */
  readonly maxCost: string
  readonly webTools: boolean
  /** Addresses and CIDR blocks as typed, with spaces, commas or lines between them. */
  readonly ips: string
}

const noRestrictions = { modelChoice: 'all', models: [], maxCost: '', webTools: true, ips: '' } as const

export const emptyTerms: TermsForm = {
  name: '',
  limit: '',
  window: 'lifetime',
  expiry: 'none',
  date: '',
  ...noRestrictions,
}

export function isRestricted({ modelChoice, maxCost, webTools, ips }: TermsForm): boolean {
  return modelChoice === 'some' || maxCost !== '' || !webTools || ips !== ''
}

export const windowWords: Readonly<Record<Window, readonly [choice: string, period: string]>> = {
  lifetime: ['Never', 'in total'],
  day: ['Daily, at 00:00 UTC', 'today (UTC)'],
  week: ['Weekly, Monday 00:00 UTC', 'this week (UTC)'],
  month: ['Monthly, on the 1st, 00:00 UTC', 'this month (UTC)'],
}

export type TermsErrors = Readonly<Partial<Record<'name' | 'limit' | 'date' | 'models' | 'maxCost', string>>>

export function checkTerms(form: TermsForm, nowMs: number): TermsErrors {
  return {
    ...(form.name.trim() === '' && { name: 'Give the key a name.' }),
    ...(form.limit !== '' && !isAmount(form.limit) && { limit: amountError }),
    ...(form.maxCost !== '' && !isAmount(form.maxCost) && { maxCost: amountError }),
    ...(form.modelChoice === 'some' && form.models.length === 0 && { models: 'Select at least one model.' }),
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
    allowed_models: form.modelChoice === 'all' ? [] : [...form.models],
    max_request_cost: form.maxCost === '' ? null : form.maxCost,
    web_tools: form.webTools,
    allowed_ips: form.ips.split(/[\s,]+/).filter((ip) => ip !== ''),
  }
}

/** What an edit sends: the fields that differ from the form as it was opened. */
export function termsChanges(form: TermsForm, opened: TermsForm, nowMs: number) {
  const before = termsBody(opened, nowMs)
  // The body of a form without a limit says "lifetime", whatever window the key has.
  const isOtherLimit = form.limit !== opened.limit || form.window !== opened.window
  return changedFields(termsBody(form, nowMs), isOtherLimit ? { ...before, limit_window: opened.window } : before)
}

/** The form of a key as it is now. */
export function termsOf(key: Pick<Key, 'name' | 'limit' | 'limit_window' | RestrictionField>): TermsForm {
  return {
    name: key.name,
    limit: key.limit ?? '',
    window: key.limit_window,
    expiry: 'keep',
    date: '',
    modelChoice: key.allowed_models.length === 0 ? 'all' : 'some',
    models: key.allowed_models,
    maxCost: key.max_request_cost ?? '',
    webTools: key.web_tools,
    ips: key.allowed_ips.join('\n'),
  }
}

type RestrictionField = 'allowed_models' | 'max_request_cost' | 'web_tools' | 'allowed_ips'

/** The restrictions of a key, in a few words each; empty if it has none. */
export function restrictionsOf(key: Pick<Key, RestrictionField>): readonly string[] {
  const { allowed_models: models, allowed_ips: ips } = key
  const count = (list: readonly string[], word: string) => `${list.length} ${word}${list.length === 1 ? '' : 's'}`
  return [
    ...(models.length === 0 ? [] : [models.length === 1 ? models[0]! : count(models, 'model')]),
    ...(key.max_request_cost === null ? [] : [`max $${key.max_request_cost} per request`]),
    ...(key.web_tools ? [] : ['no web tools']),
    ...(ips.length === 0 ? [] : [count(ips, 'IP range')]),
  ]
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
