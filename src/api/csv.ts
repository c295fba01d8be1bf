import type { RenderedRequest } from './render-request.ts'

const columns: Readonly<Record<string, (request: RenderedRequest) => Cell>> = {
  id: ({ id }) => id,
  created_at: (request) => request.created_at,
  ended_at: (request) => request.ended_at,
  status: ({ status }) => status,
  model: ({ model }) => model,
  stream: ({ stream }) => stream,
  key_id: ({ key }) => key.id,
  key_name: ({ key }) => key.name,
  quote_atomic: (request) => request.quote_atomic,
  held_atomic: (request) => request.held_atomic,
  charged_atomic: (request) => request.charged_atomic,
  charged: ({ charged }) => charged,
  refunded_atomic: (request) => request.refunded_atomic,
  inference_atomic: ({ cost }) => cost.inference_atomic,
  search_atomic: ({ cost }) => cost.search_atomic,
  search_calls: ({ cost }) => cost.search_calls,
  fetch_calls: ({ cost }) => cost.fetch_calls,
  prompt_tokens: ({ usage }) => usage?.prompt_tokens ?? null,
  completion_tokens: ({ usage }) => usage?.completion_tokens ?? null,
  reasoning_tokens: ({ usage }) => usage?.reasoning_tokens ?? null,
  first_token_ms: ({ latency }) => latency.first_token_ms,
  total_ms: ({ latency }) => latency.total_ms,
  finish_reason: (request) => request.finish_reason,
  error_code: ({ error }) => error?.code ?? null,
  settlement_state: ({ settlement }) => settlement.state,
  tx_hash: ({ settlement }) => settlement.tx_hash,
}

export const csvHeader = `${Object.keys(columns).join(',')}\r\n`

export function csvLine(request: RenderedRequest): string {
  return csvRow(Object.values(columns).map((read) => read(request)))
}

type Cell = string | number | boolean | null

export function csvRow(cells: readonly Cell[]): string {
  return `${cells.map(csvCell).join(',')}\r\n`
}

/** CSV injection: spreadsheets would run text that looks like a formula, so it gets an apostrophe. */
function csvCell(value: Cell): string {
  if (typeof value !== 'string') return value === null ? '' : String(value)
  const isAmount = /^-?\d+(\.\d+)?$/.test(value)
  const text = !isAmount && /^[=+\-@\t\r]/.test(value) ? `'${value}` : value
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}
