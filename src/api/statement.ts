import { readStatement, type Statement } from '../ledger/statement.ts'
import { moneyFields } from '../money/money-fields.ts'
import { fromAtomic } from '../money/usdc.ts'
import type { AnswerOf } from '../openapi/contract.ts'
import { fundsContracts } from '../openapi/contracts/funds.ts'
import { unusable } from '../openapi/input-refusal.ts'
import { csvRow } from './csv.ts'
import type { ApiRouter } from './router.ts'
import type { ApiServices } from './services.ts'

type RenderedStatement = AnswerOf<typeof fundsContracts.getStatement>

/** `GET /api/statement`: the account's statement of a month, as JSON or CSV. */
export function routeStatement(router: ApiRouter, { database }: ApiServices): void {
  router.at(fundsContracts.getStatement).answer(async ({ owner, query, accept }) => {
    const nowMs = Date.now()
    const month = query.month ?? monthOf(new Date(nowMs))
    const span = spanOf(month)
    if (span.from.getTime() > nowMs) throw unusable('month', 'it is in the future')
    const rendered = render(month, span, nowMs, await readStatement(database, owner, span.from, span.to))
    const format = query.format ?? (accept.includes('text/csv') ? 'csv' : 'json')
    if (format === 'json') return rendered
    return query.by === 'key' ? keysFile(rendered) : linesFile(rendered)
  })
}

type Span = { readonly from: Date; readonly to: Date }

/** Months are in UTC, like all days and hours of the ledger. */
function spanOf(month: string): Span {
  const [year, number] = month.split('-').map(Number)
  return { from: new Date(Date.UTC(year!, number! - 1)), to: new Date(Date.UTC(year!, number!)) }
}

function monthOf(at: Date): string {
  return at.toISOString().slice(0, 7)
}

function render(month: string, { from, to }: Span, nowMs: number, statement: Statement): RenderedStatement {
  const { opening, closing, lines, keys, addsUp, openedAt } = statement
  return {
    object: 'statement',
    month,
    from: from.toISOString(),
    to: to.toISOString(),
    is_over: to.getTime() <= nowMs,
    first_month: monthOf(openedAt),
    ...moneyFields({ opening, closing }),
    lines: lines.map(({ kind, model, count, amount }) => ({
      kind,
      model: model ?? null,
      count,
      ...moneyFields({ amount }),
    })),
    keys: keys.map(({ keyId, name, hint, requests, searches, inference, search }) => ({
      key: { id: keyId, name, hint },
      requests,
      searches,
      ...moneyFields({ inference, search, amount: fromAtomic(inference + search) }),
    })),
    adds_up: addsUp,
  }
}

function linesFile(statement: RenderedStatement): Response {
  const { month, lines } = statement
  const rows = [
    ['month', 'kind', 'model', 'count', 'amount_atomic', 'amount'],
    [month, 'opening_balance', null, null, statement.opening_atomic, statement.opening],
    ...lines.map(({ kind, model, count, amount_atomic, amount }) => [month, kind, model, count, amount_atomic, amount]),
    [month, 'closing_balance', null, null, statement.closing_atomic, statement.closing],
  ]
  return csvFile(`penny-statement-${month}.csv`, rows)
}

function keysFile({ month, keys }: RenderedStatement): Response {
  const rows = keys.map(({ key, requests, searches, ...line }) => [
    ...[month, key.id, key.name, requests, searches],
    ...[line.inference_atomic, line.search_atomic, line.amount_atomic, line.amount],
  ])
  const head = ['month', 'key_id', 'key', 'requests', 'searches', 'inference_atomic', 'search_atomic']
  return csvFile(`penny-statement-${month}-by-key.csv`, [[...head, 'amount_atomic', 'amount'], ...rows])
}

function csvFile(name: string, rows: readonly Parameters<typeof csvRow>[0][]): Response {
  return new Response(rows.map(csvRow).join(''), {
    headers: {
      'content-type': 'text/csv; charset=utf-8',
      'content-disposition': `attachment; filename="${name}"`,
      'cache-control': 'no-store',
    },
  })
}
