import type { AccountRef } from '../db/account-ref.ts'
import { isUuid } from '../db/uuid.ts'
import { ServiceError } from '../errors.ts'
import { listKeys } from '../identity/api-keys.ts'
import type { Payer } from '../ledger/hold-calls.ts'
import { parseRequestId, type RequestId } from '../ledger/request-id.ts'
import {
  listRequests,
  type RequestFilter,
  type RequestTotals,
  readAllRequests,
  sumRequests,
} from '../ledger/request-log.ts'
import { findRequest } from '../ledger/requests.ts'
import { checkNotArchived } from '../ledger/sealed-months.ts'
import { moneyFields } from '../money/money-fields.ts'
import { parse, zero } from '../money/usdc.ts'
import type { AnswerOf, QueryOf } from '../openapi/contract.ts'
import { requestContracts } from '../openapi/contracts/requests.ts'
import { unusable } from '../openapi/input-refusal.ts'
import { csvHeader, csvLine } from './csv.ts'
import type { Downloads } from './downloads.ts'
import { type RenderedRequest, renderRequest } from './render-request.ts'
import type { ApiRouter } from './router.ts'
import type { ApiServices } from './services.ts'

type Filters = QueryOf<typeof requestContracts.getRequestTotals>

/** The request log: pages, totals, single requests, downloads. */
export function routeRequests(router: ApiRouter, { database, retries }: ApiServices, downloads: Downloads): void {
  router.at(requestContracts.listRequests).answer(async ({ owner, query, accept, outgoing }) => {
    const filter = filterOf(query)
    const format = query.format ?? formatOf(accept)
    if (format !== 'json') {
      const { type, extension, first, line } = format === 'csv' ? csv : ndjson
      const text = linesOf(owner, filter, first, line)
      return downloads.start({ owner, outgoing }, { text, type, name: `penny-requests.${extension}` })
    }
    if (filter === undefined) return { object: 'list', data: [], has_more: false, next_cursor: null }
    if (query.cursor !== undefined && !isUuid(query.cursor)) {
      throw unusable('cursor', 'it must be the next_cursor of an earlier page')
    }
    const below = query.cursor as RequestId | undefined
    const page = await listRequests(database, owner, filter, { below, limit: query.limit })
    return {
      object: 'list',
      data: page.rows.map(renderRequest),
      has_more: page.next !== undefined,
      next_cursor: page.next ?? null,
    }
  })

  router.at(requestContracts.getRequestTotals).answer(async ({ owner, query }) => {
    const filter = filterOf(query)
    return renderTotals(filter === undefined ? nothing : await sumRequests(database, owner, filter))
  })

  router.at(requestContracts.getRequest).answer(async ({ owner, parameters }) => {
    const id = parseRequestId(parameters.id)
    const row = id === undefined ? undefined : await findRequest(database, owner.partition, owner.accountId, id)
    if (row !== undefined) return renderRequest(row)
    // Archived months give 410, also to other accounts.
    if (id !== undefined) await checkNotArchived(database, id)
    throw new ServiceError(
      'request_not_found',
      `No request ${parameters.id.slice(0, 100)} belongs to this account. The id is in the x-router-request-id header of the answer.`,
    )
  })

  router.at(requestContracts.deleteReplays).answer(async ({ owner, session, keysMadeBy }) => {
    let keyIds: readonly string[] | undefined
    if (session === undefined) keyIds = [(owner as Payer).keyId]
    else if (keysMadeBy !== undefined)
      keyIds = (await listKeys(database, owner.accountId, keysMadeBy)).map(({ id }) => id)
    return { object: 'deletion', deleted: await retries.deleteAnswers(owner, keyIds) }
  })

  async function* linesOf(
    owner: AccountRef,
    filter: RequestFilter | undefined,
    first: string,
    line: DownloadForm['line'],
  ): AsyncGenerator<string> {
    yield first
    if (filter === undefined) return
    for await (const rows of readAllRequests(database, owner, filter)) {
      yield rows.map((row) => line(renderRequest(row))).join('')
    }
  }
}

type DownloadForm = {
  readonly type: string
  readonly extension: string
  readonly first: string
  readonly line: (request: RenderedRequest) => string
}

const csv: DownloadForm = { type: 'text/csv; charset=utf-8', extension: 'csv', first: csvHeader, line: csvLine }
const ndjson: DownloadForm = {
  type: 'application/x-ndjson; charset=utf-8',
  extension: 'ndjson',
  first: '',
  line: (request) => `${JSON.stringify(request)}\n`,
}

function formatOf(accept: string): 'json' | 'csv' | 'ndjson' {
  if (accept.includes('text/csv')) return 'csv'
  return accept.includes('application/x-ndjson') ? 'ndjson' : 'json'
}

/** Undefined when nothing can match: the search text is neither an id nor a transaction hash. */
function filterOf(query: Filters): RequestFilter | undefined {
  const found = query.find === undefined || query.find === '' ? undefined : foundBy(query.find)
  if (found === null) return undefined
  return {
    statuses: query.status,
    errorCodes: query.error_code,
    models: query.model,
    keyIds: query.key,
    hasSearch: query.has_search && query.has_search === 'true',
    stream: query.stream && query.stream === 'true',
    chargedMin: query.min_cost === undefined ? undefined : parse(query.min_cost),
    from: query.from === undefined ? undefined : new Date(query.from),
    to: query.to === undefined ? undefined : new Date(query.to),
    found,
  }
}

function foundBy(text: string): NonNullable<RequestFilter['found']> | null {
  if (/^0x[0-9a-f]{64}$/i.test(text)) return { txHash: Buffer.from(text.slice(2), 'hex') }
  // Completion ids and receipt ids have the same digits as the request id.
  const id = parseRequestId(text.toLowerCase().replace(/^chatcmpl-/, 'req_'))
  return id === undefined ? null : { id }
}

const nothing: RequestTotals = {
  requests: 0,
  refused: 0,
  charged: zero,
  quote: zero,
  search: zero,
  promptTokens: 0,
  completionTokens: 0,
  searchCalls: 0,
  complete: true,
}

function renderTotals(totals: RequestTotals): AnswerOf<typeof requestContracts.getRequestTotals> {
  return {
    object: 'request_totals',
    requests: totals.requests,
    refused: totals.refused,
    ...moneyFields({ charged: totals.charged, quote: totals.quote, search: totals.search }),
    prompt_tokens: totals.promptTokens,
    completion_tokens: totals.completionTokens,
    search_calls: totals.searchCalls,
    complete: totals.complete,
  }
}
