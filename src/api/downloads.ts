import type { ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import type { AccountRef } from '../db/account-ref.ts'
import { Shares } from '../fairness/shares.ts'
import { responseClosed } from '../http/disconnect.ts'
import { disconnectWhenBlocked } from '../http/send.ts'
import type { RenderedRequest } from './render-request.ts'

export type DownloadLimits = {
  /** Concurrent downloads of all accounts. */
  readonly filesMax: number
  /** A client that reads nothing for this long is disconnected. */
  readonly blockedMsMax: number
}

export type RowReader = { readonly owner: AccountRef; readonly outgoing: ServerResponse }

export type DownloadedFile = {
  readonly lines: AsyncIterable<string>
  readonly type: string
  readonly name: string
}

/** Files that are produced while the client reads them. Limits how many run concurrently. */
export class Downloads {
  readonly #limits: DownloadLimits
  readonly #places: Shares

  constructor(limits: DownloadLimits) {
    this.#limits = limits
    const { filesMax } = limits
    this.#places = new Shares({ what: 'downloads', capacity: filesMax, floor: Math.floor(filesMax / 4) })
  }

  start({ owner, outgoing }: RowReader, { lines, type, name }: DownloadedFile): Response {
    this.#places.acquire(owner.accountId)
    // Released when the response closes: for a HEAD request the file is never iterated, so it cannot release its own slot.
    void responseClosed(outgoing).then(() => this.#places.release(owner.accountId))
    const watched = cutOffWhenBlocked(lines, outgoing, this.#limits.blockedMsMax)
    const body = Readable.toWeb(Readable.from(watched, { objectMode: false, highWaterMark: 64 * 1024 }))
    return new Response(body as ConstructorParameters<typeof Response>[0], {
      headers: {
        'content-type': type,
        'content-disposition': `attachment; filename="${name}"`,
        'cache-control': 'no-store',
      },
    })
  }
}

/** Time that we need to produce the next lines does not count as blocked. */
async function* cutOffWhenBlocked(
  lines: AsyncIterable<string>,
  outgoing: ServerResponse,
  blockedMsMax: number,
): AsyncGenerator<string> {
  for await (const text of lines) {
    const stop = disconnectWhenBlocked(outgoing, blockedMsMax)
    yield text
    stop()
  }
  disconnectWhenBlocked(outgoing, blockedMsMax)
}

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
