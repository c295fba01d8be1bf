import { type ReactNode, useRef } from 'react'
import type { LedgerRequest, RequestTotals } from '../../api/shapes.ts'
import { atomic, formatCharge, formatCount } from '../../money/format.ts'
import { classNames } from '../../ui/class-names.ts'
import { type Range, useWindowedRows } from '../../ui/windowed.ts'
import type { RequestColumn } from './columns.tsx'
import { RequestItem } from './request-list.tsx'

// In pixels, as the classes of the rows say it: gaps are counted in them.
const rowHeight = 40
const itemHeight = 56

type Props = {
  readonly rows: readonly LedgerRequest[]
  /** There are older ones, not read yet. */
  readonly hasMore: boolean
  readonly totals: RequestTotals | undefined
  readonly openId: string | undefined
}

/** Renders only rows near the viewport. */
export function RequestTable({
  rows,
  hasMore,
  totals,
  openId,
  columns,
}: Props & { columns: readonly RequestColumn[] }) {
  const body = useRef<HTMLTableSectionElement>(null)
  const [ranges, focusProps] = useWindowedRows(body, rows, rowHeight)
  const count = countOf(rows, hasMore, totals)
  return (
    <div className="overflow-x-auto">
      <table
        className="w-full border-collapse text-left"
        aria-rowcount={count === undefined ? -1 : count + (totals === undefined ? 1 : 2)}
      >
        <caption className="sr-only">Requests, newest first</caption>
        <thead>
          <tr className="border-b border-rule text-sm text-muted" aria-rowindex={1}>
            {columns.map(({ id, head, right }) => (
              <th
                key={id}
                scope="col"
                className={classNames('px-3 py-2 font-normal whitespace-nowrap', right && 'text-right')}
              >
                {head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody ref={body} {...focusProps}>
          {windowed(rows, ranges, { height: rowHeight, gap: tableGap }, (row, at) => (
            <tr
              key={row.id}
              data-id={row.id}
              aria-rowindex={at + 2}
              data-testid="request-row"
              className={classNames(
                'relative h-[40px] border-b border-rule hover:bg-sunken has-focus-visible:outline-2 has-focus-visible:-outline-offset-2 has-focus-visible:outline-link',
                row.id === openId && 'bg-sunken',
              )}
            >
              {columns.map(({ id, right, cell }) => (
                <td key={id} className={classNames('px-3', right && 'num text-right whitespace-nowrap')}>
                  {cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
        {totals !== undefined && (
          <tfoot>
            <tr
              className="border-t border-edge font-medium"
              data-testid="totals"
              data-charged={totals.charged_atomic}
              {...(count !== undefined && { 'aria-rowindex': count + 2 })}
            >
              {columns.map(({ id, right }) => (
                <td key={id} className={classNames('px-3 py-2 whitespace-nowrap', right && 'num text-right')}>
                  {totalOf(id, totals)}
                </td>
              ))}
            </tr>
          </tfoot>
        )}
      </table>
    </div>
  )
}

/** The same for narrow screens: two lines a row. */
export function RequestRows({ rows, hasMore, totals }: Props) {
  const list = useRef<HTMLUListElement>(null)
  const [ranges, focusProps] = useWindowedRows(list, rows, itemHeight)
  const count = countOf(rows, hasMore, totals)
  return (
    <>
      <ul ref={list} {...focusProps}>
        {windowed(rows, ranges, { height: itemHeight, gap: listGap }, (row, at) => (
          <RequestItem key={row.id} request={row} place={{ at: at + 1, of: count ?? -1 }} />
        ))}
      </ul>
      {totals !== undefined && (
        <p className="flex justify-between border-t border-edge px-4 py-2 font-medium">
          <span>{totalOf('time', totals)}</span>
          <span className="num">{formatCharge(atomic(totals.charged_atomic))}</span>
        </p>
      )}
    </>
  )
}

/** The total number, loaded or not; undefined while it is unknown. */
function countOf(rows: readonly LedgerRequest[], hasMore: boolean, totals: RequestTotals | undefined) {
  if (!hasMore) return rows.length
  return totals?.complete ? Math.max(totals.requests + totals.refused, rows.length) : undefined
}

type Gap = (key: string, height: number) => ReactNode

const tableGap: Gap = (key, height) => (
  // biome-ignore lint/a11y/noAriaHiddenOnFocusable: nothing in a gap takes the focus.
  <tr key={key} aria-hidden="true">
    <td style={{ height }} />
  </tr>
)

const listGap: Gap = (key, height) => <li key={key} aria-hidden="true" style={{ height }} />

/** The rows of the ranges, and gaps as high as those left out. One flat list: a row that stays keeps its element and its focus. */
function windowed(
  rows: readonly LedgerRequest[],
  ranges: readonly Range[],
  { height, gap }: { readonly height: number; readonly gap: Gap },
  render: (row: LedgerRequest, at: number) => ReactNode,
): readonly ReactNode[] {
  const parts: ReactNode[] = []
  let shown = 0
  for (const [from, to] of [...ranges, [rows.length, rows.length] as const]) {
    if (from > shown)
      parts.push(
        gap(`gap ${from === rows.length ? 'end' : parts.length === 0 ? 'top' : 'middle'}`, (from - shown) * height),
      )
    for (let at = from; at < to; at += 1) parts.push(render(rows[at]!, at))
    shown = to
  }
  return parts
}

/** Requests are those that were admitted, as on every page; refused ones are in the log too and counted apart. */
function countWords({ requests, refused }: RequestTotals): string {
  const admitted = `${formatCount(requests)} ${requests === 1 ? 'request' : 'requests'}`
  if (refused === 0) return admitted
  return requests === 0 ? `${formatCount(refused)} refused` : `${admitted}, ${formatCount(refused)} refused`
}

function totalOf(column: string, totals: RequestTotals): string {
  switch (column) {
    case 'time':
      return `${totals.complete ? '' : 'First '}${countWords(totals)}`
    case 'in':
      return formatCount(totals.prompt_tokens)
    case 'out':
      return formatCount(totals.completion_tokens)
    case 'searches':
      return totals.search_calls === 0 ? '–' : formatCount(totals.search_calls)
    case 'charged':
      return formatCharge(atomic(totals.charged_atomic))
    default:
      return ''
  }
}
