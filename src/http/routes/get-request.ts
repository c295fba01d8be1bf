import type { Database } from '../../db/database.ts'
import { ServiceError } from '../../errors.ts'
import { formatRequestId, parseRequestId } from '../../ledger/request-id.ts'
import { findRequest, type RequestPrice, type RequestRow, type ToolCallRow } from '../../ledger/requests.ts'
import { format, fromAtomic, max, type Usdc, zero } from '../../money/usdc.ts'

/** `GET /api/requests/{id}`: the ledger row, for the account that owns it. */
export async function getRequest(
  database: Database,
  owner: { readonly partition: number; readonly accountId: string },
  idText: string,
): Promise<object> {
  const id = parseRequestId(idText)
  const row = id === undefined ? undefined : await findRequest(database, owner.partition, owner.accountId, id)
  if (row === undefined) throw new RequestNotFoundError(idText)
  return renderRequest(row)
}

export function renderRequest(row: RequestRow): object {
  const held = fromAtomic(row.quote + row.extended)
  return {
    id: formatRequestId(row.id),
    object: 'request',
    status: row.status,
    created_at: row.createdAt.toISOString(),
    ended_at: row.endedAt?.toISOString() ?? null,
    model: row.model ?? null,
    stream: row.stream,
    max_tokens: row.maxTokens ?? null,
    key: row.key,
    ...money('quote', row.quote),
    ...money('held', held),
    ...money('extended', row.extended),
    ...money('charged', row.charged),
    ...money('refunded', row.status === 'held' ? zero : max(zero, fromAtomic(held - row.charged))),
    ...money('excess', max(zero, fromAtomic(row.charged - row.quote))),
    ...money('from_credit', row.fromCredit),
    ...money('authorized', row.authorized),
    usage: renderUsage(row),
    cost: renderCost(row),
    price: row.price && {
      version: row.price.version,
      input_per_million: format(row.price.inputPerMillion),
      output_per_million: format(row.price.outputPerMillion),
      search_per_call: format(row.price.searchPerCall),
    },
    finish_reason: row.finishReason ?? null,
    error: row.errorCode === undefined ? null : { code: row.errorCode },
    latency: { first_token_ms: row.firstTokenMs ?? null, total_ms: row.totalMs ?? null },
    settlement: renderSettlement(row),
    receipt: null,
  }
}

/** An amount twice: exact for programs, plain for people. */
function money(name: string, amount: Usdc): Record<string, string> {
  return { [`${name}_atomic`]: amount.toString(), [name]: format(amount) }
}

function renderUsage({ usage }: RequestRow): object | null {
  if (usage === undefined) return null
  return {
    prompt_tokens: usage.promptTokens,
    completion_tokens: usage.completionTokens,
    reasoning_tokens: usage.reasoningTokens,
    cached_tokens: usage.cachedTokens,
    total_tokens: usage.promptTokens + usage.completionTokens,
    source: usage.source,
  }
}

function renderCost(row: RequestRow): object {
  return {
    ...money('inference', fromAtomic(row.charged - row.searchCost)),
    ...money('search', row.searchCost),
    search_calls: row.searchCalls,
    fetch_calls: row.fetchCalls,
    lines: renderLines(row),
  }
}

// Tokens cost so much for a million of them, so only the sum of all lines is rounded, up, once.
function renderLines({ usage, price, charged, toolCalls }: RequestRow): object[] {
  if (usage === undefined || price === undefined || charged === 0n) return []
  return [
    { item: 'input_tokens', units: usage.promptTokens, per_million: format(price.inputPerMillion) },
    { item: 'output_tokens', units: usage.completionTokens, per_million: format(price.outputPerMillion) },
    ...toolCalls.map((call) => renderToolLine(call, price)),
  ]
}

/** A call that failed is told, and costs nothing. */
function renderToolLine({ number, kind, status, results }: ToolCallRow, { searchPerCall }: RequestPrice): object {
  const item = kind === 'search' ? 'web_search' : 'web_fetch'
  const perCall = kind === 'search' ? format(searchPerCall) : '0'
  return { item, units: status === 'completed' ? 1 : 0, per_call: perCall, call: number, status, results }
}

function renderSettlement(row: RequestRow): object {
  return {
    state: settlementState(row),
    nonce: row.nonce?.toString() ?? null,
    authorization: null,
    batch: null,
    tx_hash: null,
  }
}

// Until authorizations are signed and submitted, an authorization is allocated with its hold or voided with it.
function settlementState(row: RequestRow): 'none' | 'allocated' | 'voided' {
  if (row.authorized === 0n) return 'none'
  return row.voided ? 'voided' : 'allocated'
}

export class RequestNotFoundError extends ServiceError {
  readonly code = 'request_not_found'
  constructor(id: string) {
    super(
      `No request ${id.slice(0, 100)} belongs to this account. The id is in the x-router-request-id header of the answer.`,
    )
  }
}
