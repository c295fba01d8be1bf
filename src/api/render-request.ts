import type { z } from 'zod'
import { formatRequestId } from '../ledger/request-id.ts'
import type { LedgerRequest, RequestPrice, RequestToolCall } from '../ledger/requests.ts'
import { moneyFields } from '../money/money-fields.ts'
import { format, fromAtomic, max, zero } from '../money/usdc.ts'
import type { request } from '../openapi/contracts/requests.ts'
import { paymentNonce } from '../settlement/payment-receipt.ts'

export type RenderedRequest = z.output<typeof request>

/** A ledger row as in the API. */
export function renderRequest(row: LedgerRequest): RenderedRequest {
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
    ...moneyFields({
      quote: row.quote,
      // The amount reserved up front, as in the response header. An extension only blocks money for others; it is not part of the hold.
      held: row.quote,
      extended: row.extended,
      charged: row.charged,
      given_back: row.givenBack,
      refunded: row.status === 'held' ? zero : max(zero, fromAtomic(row.quote - row.charged)),
      excess: max(zero, fromAtomic(row.charged - row.quote)),
      from_credit: row.fromCredit,
      authorized: row.authorized,
    }),
    usage: renderUsage(row),
    cost: {
      ...moneyFields({ inference: fromAtomic(row.charged - row.searchCost), search: row.searchCost }),
      search_calls: row.searchCalls,
      fetch_calls: row.fetchCalls,
      lines: renderLines(row),
    },
    price:
      row.price === undefined
        ? null
        : {
            version: row.price.version,
            input_per_million: format(row.price.inputPerMillion),
            output_per_million: format(row.price.outputPerMillion),
            search_per_call: format(row.price.searchPerCall),
          },
    finish_reason: row.finishReason ?? null,
    error: row.errorCode === undefined ? null : { code: row.errorCode },
    latency: { first_token_ms: row.firstTokenMs ?? null, total_ms: row.totalMs ?? null },
    settlement: renderSettlement(row),
    receipt: renderReceipt(row),
  }
}

function renderUsage({ usage }: LedgerRequest): RenderedRequest['usage'] {
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

// Prices are per million tokens, so only the sum of all lines is rounded, once, up.
function renderLines({ usage, price, charged, toolCalls }: LedgerRequest): RenderedRequest['cost']['lines'] {
  if (usage === undefined || price === undefined || charged === 0n) return []
  return [
    { item: 'input_tokens', units: usage.promptTokens, per_million: format(price.inputPerMillion) },
    { item: 'output_tokens', units: usage.completionTokens, per_million: format(price.outputPerMillion) },
    ...toolCalls.map((call) => renderToolLine(call, price)),
  ]
}

/** Failed calls and calls that were not run are listed with cost zero. */
function renderToolLine(
  { number, kind, status, results }: RequestToolCall,
  { searchPerCall }: RequestPrice,
): RenderedRequest['cost']['lines'][number] {
  const item = kind === 'search' ? 'web_search' : 'web_fetch'
  const perCall = kind === 'search' ? format(searchPerCall) : '0'
  const line = { item, units: status === 'completed' ? 1 : 0, per_call: perCall, call: number, results } as const
  if (status === 'completed' || status === 'failed') return { ...line, status }
  return { ...line, status: 'failed', reason: status }
}

function renderSettlement({ payment, charged, isPrepaid }: LedgerRequest): RenderedRequest['settlement'] {
  return {
    state: charged === 0n ? 'none' : isPrepaid ? 'prepaid' : (payment?.state ?? 'unpaid'),
    payment:
      payment === undefined || isPrepaid
        ? null
        : {
            number: payment.number.toString(),
            nonce: paymentNonce(payment),
            ...moneyFields({ value: fromAtomic(payment.value) }),
            entries: payment.entries,
          },
    batch: payment?.batch?.toString() ?? null,
    batch_position: payment?.place?.position ?? null,
    batch_size: payment?.place?.size ?? null,
    tx_hash: hexOf(payment?.txHash),
    reason: payment?.reason ?? null,
    changed_at: payment?.changedAt.toISOString() ?? null,
  }
}

function renderReceipt({ id, entry, payment }: LedgerRequest): RenderedRequest['receipt'] {
  if (entry === undefined) return null
  const receiptId = formatRequestId(id)
  return { id: receiptId, number: entry.toString(), batched: payment?.txHash !== undefined, url: `/r/${receiptId}` }
}

export function hexOf(bytes: Buffer | undefined): string | null {
  return bytes === undefined ? null : `0x${bytes.toString('hex')}`
}
