import { parse } from '../../../../src/money/usdc.ts'
import type { RequestFilter } from '../../api/queries.ts'

// Filters are in the address, so that a view can be bookmarked, shared and returned to.

export const ranges = [
  ['1h', '1 h'],
  ['24h', '24 h'],
  ['7d', '7 d'],
  ['30d', '30 d'],
  ['all', 'All'],
] as const

export type RangePreset = (typeof ranges)[number][0]

export const statuses = ['held', 'succeeded', 'failed', 'cancelled', 'refused'] as const
export type Status = (typeof statuses)[number]

/** AND between, OR within. */
export type Filters = {
  readonly range: RangePreset | { readonly from: string; readonly to: string }
  readonly status: readonly Status[]
  readonly code: readonly string[]
  readonly model: readonly string[]
  readonly key: readonly string[]
  readonly search: boolean | undefined
  readonly stream: boolean | undefined
  /** USDC, as typed. */
  readonly min: string
  /** A request, completion or receipt id, or a transaction. */
  readonly find: string
}

export const noFilters: Filters = {
  range: 'all',
  status: [],
  code: [],
  model: [],
  key: [],
  search: undefined,
  stream: undefined,
  min: '',
  find: '',
}

type Search = Readonly<Record<string, string | undefined>>

/** Reads filters from an address. Ignores unknown values: an old link must not break the page. */
export function parseFilters(search: Search): Filters {
  return {
    range: parseRange(search),
    status: listOf(search.status).filter((one): one is Status => (statuses as readonly string[]).includes(one)),
    code: listOf(search.code),
    model: listOf(search.model),
    key: listOf(search.key).filter((one) => /^[0-9a-f-]{36}$/.test(one)),
    search: flagOf(search.search),
    stream: flagOf(search.stream),
    min: isMinCost(search.min ?? '') ? search.min! : '',
    find: (search.find ?? '').trim().slice(0, 200),
  }
}

/** The address of filters; those that are not set are not in it. */
export function toSearch(filters: Filters): Record<string, string> {
  const { range, status, code, model, key, search, stream, min, find } = filters
  const all: Record<string, string> = {
    ...(typeof range === 'string' ? { range: range === 'all' ? '' : range } : range),
    status: status.join(','),
    code: code.join(','),
    model: model.join(','),
    key: key.join(','),
    search: search === undefined ? '' : String(search),
    stream: stream === undefined ? '' : String(stream),
    min,
    find,
  }
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== ''))
}

const hourMs = 3_600_000
const spans: Readonly<Record<Exclude<RangePreset, 'all'>, number>> = {
  '1h': hourMs,
  '24h': 24 * hourMs,
  '7d': 7 * 24 * hourMs,
  '30d': 30 * 24 * hourMs,
}

/** The service's query. A preset is relative to `now`, rounded down to a minute so that the query key stays stable. */
export function toQuery(filters: Filters, nowMs: number): RequestFilter {
  const { range, status, code, model, key, search, stream, min, find } = filters
  const minute = Math.floor(nowMs / 60_000) * 60_000
  return {
    ...(range !== 'all' &&
      (typeof range === 'string'
        ? { from: new Date(minute - spans[range]).toISOString() }
        : { from: range.from, to: range.to })),
    ...(status.length > 0 && { status }),
    ...(code.length > 0 && { error_code: code }),
    ...(model.length > 0 && { model }),
    ...(key.length > 0 && { key }),
    ...(search !== undefined && { has_search: search ? 'true' : 'false' }),
    ...(stream !== undefined && { stream: stream ? 'true' : 'false' }),
    ...(min !== '' && { min_cost: min }),
    ...(find !== '' && { find }),
  }
}

type Filterable = {
  readonly created_at: string
  readonly status: string
  readonly model: string | null
  readonly stream: boolean
  readonly key: { readonly id: string }
  readonly cost: { readonly search_calls: number }
  readonly charged_atomic: string
  readonly error: { readonly code: string } | null
}

/** Whether a request that has just happened belongs on the filtered page. */
export function matches(request: Filterable, filter: RequestFilter): boolean {
  const among = (allowed: readonly string[] | undefined, value: string) =>
    allowed === undefined || allowed.includes(value)
  return (
    filter.find === undefined &&
    (filter.to === undefined || request.created_at < filter.to) &&
    (filter.from === undefined || Date.parse(request.created_at) >= Date.parse(filter.from)) &&
    among(filter.status, request.status) &&
    among(filter.error_code, request.error?.code ?? '') &&
    among(filter.model, request.model ?? '') &&
    among(filter.key, request.key.id) &&
    (filter.stream === undefined || String(request.stream) === filter.stream) &&
    (filter.has_search === undefined || String(request.cost.search_calls > 0) === filter.has_search) &&
    (filter.min_cost === undefined || BigInt(request.charged_atomic) >= parse(filter.min_cost))
  )
}

export function isMinCost(text: string): boolean {
  return /^\d{1,12}(\.\d{1,6})?$/.test(text)
}

export function isFiltered(filters: Filters): boolean {
  return Object.keys(toSearch(filters)).length > 0
}

function parseRange(search: Search): Filters['range'] {
  const { from, to, range } = search
  if (isInstant(from) && isInstant(to) && from < to) return { from, to }
  return ranges.find(([preset]) => preset === range)?.[0] ?? 'all'
}

function isInstant(text: string | undefined): text is string {
  return text !== undefined && /^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(text) && !Number.isNaN(Date.parse(text))
}

function listOf(text: string | undefined): string[] {
  return [...new Set((text ?? '').split(',').filter(Boolean))]
}

function flagOf(text: string | undefined): boolean | undefined {
  return text === 'true' ? true : text === 'false' ? false : undefined
}
