import {
  infiniteQueryOptions,
  keepPreviousData,
  type Query,
  type QueryClient,
  queryOptions,
} from '@tanstack/react-query'
import { ApiError, call, type Rest, shownAccount } from './call.ts'
import type { Answer, Input, Operation, Overview, Session } from './shapes.ts'

// Queries of the pages, each with one key, so that a live event can refresh exactly what it changed.

/** The pages of a list, one after the other. */
const inPages = {
  initialPageParam: null as string | null,
  getNextPageParam: (page: { readonly has_more: boolean; readonly next_cursor: string | null }) =>
    page.has_more ? page.next_cursor : null,
}

/** A query of one operation, under its key. */
const read = <Name extends Operation>(queryKey: readonly unknown[], name: Name, ...input: Rest<Name>) => ({
  queryKey,
  queryFn: () => call(name, ...input),
})

/** What is shown stays until the answer to the next question is there. */
const keepsShown = { placeholderData: keepPreviousData }

export const sessionQuery = queryOptions({
  queryKey: ['session'],
  queryFn: async () => {
    const session = await call('GET /api/session')
    if (session.signed_in || shownAccount() === undefined) return session
    // The page keeps its session: without an account it would remove its forms and their input.
    const message = 'Your session has ended. Sign in again.'
    throw new ApiError(401, { message, code: 'session_required', request_id: '' })
  },
  staleTime: 60_000,
})

/** After a sign-in. Drops an older response that is still in flight: it says that there is no session. */
export async function setSession(client: QueryClient, session: Session): Promise<void> {
  await client.cancelQueries({ queryKey: sessionQuery.queryKey })
  client.setQueryData(sessionQuery.queryKey, session)
}

export const balanceQuery = queryOptions({ ...read(['balance'], 'GET /api/balance'), staleTime: 5_000 })

export const modelsQuery = queryOptions({ ...read(['models'], 'GET /v1/models'), staleTime: 10 * 60_000 })

export const keysQuery = queryOptions(read(['keys'], 'GET /api/keys'))

export const keyQuery = (id: string) => queryOptions(read(['keys', id], 'GET /api/keys/{id}', { parameters: { id } }))

export const alertRulesQuery = queryOptions(read(['alerts', 'rules'], 'GET /api/alerts/rules'))
export const alertEmailQuery = queryOptions(read(['alerts', 'email'], 'GET /api/alerts/email'))

export const webhooksQuery = queryOptions(read(['webhooks'], 'GET /api/webhooks'))

/** Short stale time: users watch this page while they test. */
export const webhookDeliveriesQuery = (id: string) =>
  queryOptions({
    ...read(['webhooks', id, 'deliveries'], 'GET /api/webhooks/{id}/deliveries', {
      parameters: { id },
      query: { limit: 50 },
    }),
    refetchInterval: 2_000,
  })

export const overviewQuery = (range: Overview['range']) =>
  queryOptions({ ...read(['overview', range], 'GET /api/overview', { query: { range } }), ...keepsShown })

export const operatorHealthQuery = queryOptions({
  ...read(['operator', 'health'], 'GET /api/operator/health'),
  refetchInterval: 10_000,
})

export const operatorRevenueQuery = (days: string) =>
  queryOptions({
    ...read(['operator', 'revenue', days], 'GET /api/operator/revenue', { query: { days } }),
    ...keepsShown,
  })

export function operatorAccountsQuery(find: string, kind: 'all' | 'wallet') {
  return infiniteQueryOptions({
    queryKey: ['operator', 'accounts', find, kind],
    queryFn: ({ pageParam }) =>
      call('GET /api/operator/accounts', {
        query: {
          limit: '50',
          ...(find !== '' && { find }),
          ...(kind === 'wallet' && { kind }),
          ...(pageParam !== null && { cursor: pageParam }),
        },
      }),
    ...inPages,
    refetchOnWindowFocus: isShort,
  })
}

/** Query parameters of the API; built from the URL in `pages/requests/filters.ts`. */
export type RequestFilter = {
  readonly status?: readonly string[]
  readonly error_code?: readonly string[]
  readonly model?: readonly string[]
  readonly key?: readonly string[]
  readonly has_search?: 'true' | 'false'
  readonly stream?: 'true' | 'false'
  readonly min_cost?: string
  readonly from?: string
  readonly to?: string
  readonly find?: string
}

export function requestsQuery(filter: RequestFilter) {
  return infiniteQueryOptions({
    queryKey: ['requests', 'list', filter],
    queryFn: ({ pageParam }) =>
      // The first page is small and loads fast; later pages are larger.
      call('GET /api/requests', {
        query: { ...filter, ...(pageParam === null ? { limit: '50' } : { limit: '200', cursor: pageParam }) },
      }),
    ...inPages,
    placeholderData: keepPreviousData,
    refetchOnWindowFocus: isShort,
    refetchOnReconnect: isShort,
  })
}

export const renewedPagesMax = 4

/** A refetch loads every page of a list: fine for a few, too slow for ten thousand rows, which get live updates anyway. */
export function isShort({ state }: Pick<Query, 'state'>): boolean {
  const { pages } = (state.data ?? {}) as { readonly pages?: readonly unknown[] }
  return pages === undefined || pages.length <= renewedPagesMax
}

/** Keeps only the first page of a list that is no longer shown. */
export function forgetOlderPages(client: QueryClient, filter: RequestFilter): void {
  const { queryKey } = requestsQuery(filter)
  const updatedAt = client.getQueryState(queryKey)?.dataUpdatedAt ?? 0
  client.setQueryData(
    queryKey,
    (list) => list && { pages: list.pages.slice(0, 1), pageParams: list.pageParams.slice(0, 1) },
    { updatedAt },
  )
}

export const requestTotalsQuery = (filter: RequestFilter) =>
  queryOptions({
    ...read(['requests', 'totals', filter], 'GET /api/requests/totals', { query: filter }),
    ...keepsShown,
  })

export function requestQuery(id: string) {
  return queryOptions({
    queryKey: ['requests', 'one', id],
    queryFn: () => call('GET /api/requests/{id}', { parameters: { id } }),
    // An open request ends, and an ended one settles: refetch until it is settled.
    refetchInterval: ({ state }) => (state.data === undefined || isSettled(state.data) ? false : 2_000),
  })
}

function isSettled({ status, settlement }: { status: string; settlement: { state: string } }): boolean {
  return status !== 'held' && ['none', 'prepaid', 'completed'].includes(settlement.state)
}

export const usageQuery = (query: NonNullable<Input<'GET /api/usage'>['query']>) =>
  queryOptions({ ...read(['usage', query], 'GET /api/usage', { query }), ...keepsShown })

export const depositsQuery = queryOptions(read(['deposits'], 'GET /api/deposits', { query: { limit: '100' } }))

export const withdrawalsQuery = queryOptions(read(['withdrawals'], 'GET /api/withdrawals', { query: { limit: '100' } }))

export const adjustmentsQuery = queryOptions(read(['adjustments'], 'GET /api/adjustments', { query: { limit: '100' } }))

export const statementQuery = (month: string | undefined) =>
  queryOptions({
    ...read(['statement', month], 'GET /api/statement', { query: { ...(month !== undefined && { month }) } }),
    ...keepsShown,
  })

export const solvencyQuery = queryOptions({ ...read(['solvency'], 'GET /api/solvency'), refetchInterval: 15_000 })

/** A snapshot never changes. */
export const liabilityProofQuery = (accountId: string, number: string) =>
  queryOptions({
    ...read(['liabilities', accountId, number], 'GET /api/liabilities/proof', { query: { number } }),
    staleTime: Number.POSITIVE_INFINITY,
  })

export const statusQuery = queryOptions({ ...read(['status'], 'GET /api/status'), refetchInterval: 60_000 })

/** Sections of the documentation that match, best first. */
export function docsSearchQuery(text: string) {
  return queryOptions({
    queryKey: ['docs', text],
    queryFn: async ({ signal }) => {
      const response = await fetch(`/docs/search.json?q=${encodeURIComponent(text)}`, { signal })
      return response.ok ? ((await response.json()) as { hits: readonly DocsHit[] }).hits : []
    },
    enabled: text.length >= 3,
    staleTime: 10 * 60_000,
    ...(text.length >= 3 && { placeholderData: keepPreviousData }),
  })
}

type DocsHit = { readonly title: string; readonly heading: string; readonly path: string }

export const membersQuery = queryOptions(read(['members'], 'GET /api/members'))

export const invitationsQuery = queryOptions(read(['invitations'], 'GET /api/invitations'))

export const managementKeysQuery = queryOptions(read(['management-keys'], 'GET /api/management-keys'))

export const accountLogQuery = infiniteQueryOptions({
  queryKey: ['account-log'],
  queryFn: ({ pageParam }) =>
    call('GET /api/log', { query: { limit: '20', ...(pageParam !== null && { cursor: pageParam }) } }),
  ...inPages,
})

export const invitationQuery = (token: string) =>
  queryOptions({ ...read(['invitation', token], 'POST /api/auth/invitation', { body: { token } }), retry: false })

export const sessionsQuery = queryOptions(read(['sessions'], 'GET /api/sessions'))

export function receiptQuery(id: string) {
  return queryOptions({
    queryKey: ['receipts', id],
    queryFn: () => call('GET /api/receipts/{id}', { parameters: { id } }),
    retry: false,
    // Signature, payment and batch come one after the other.
    refetchInterval: ({ state: { data } }) => (data === undefined || isFinal(data) ? false : receiptRefetchMs),
  })
}

const receiptRefetchMs = 5_000

/** A payment that adds up to zero never goes on chain. */
function isFinal(receipt: Readonly<Record<string, unknown>>): boolean {
  const payment = receipt.payment as { readonly batch?: unknown; readonly value_atomic?: unknown } | undefined
  return payment?.batch !== undefined || payment?.value_atomic === '0'
}

/** Reasons why the service is not ready, by name. The response is 503 when there is one; it is not an error here. */
export const readinessQuery = queryOptions({
  queryKey: ['readiness'],
  queryFn: async () => {
    const response = await fetch('/readyz', { headers: { accept: 'application/json' } })
    const answer = (await response.json()) as Partial<Readiness>
    // A node that starts answers with an error, and one of the version before knows no parts.
    if (answer.problems === undefined) throw new Error('The service is starting.')
    return { ok: answer.ok === true, problems: answer.problems, parts: answer.parts ?? unknownParts }
  },
  refetchInterval: 15_000,
})

const unknownParts: Readiness['parts'] = { model: 'unused', search: 'unused' }

export type Standing = Answer<'GET /api/status'>['model']

export type Readiness = {
  readonly ok: boolean
  readonly problems: Readonly<Record<string, string>>
  readonly parts: { readonly model: Standing; readonly search: Standing }
}
