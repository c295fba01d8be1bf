import { useRef } from 'react'
import type { LedgerRequest, RequestTotals } from '../../api/shapes.ts'
import { atomic, formatCharge, formatCount } from '../../money/format.ts'
import { classNames } from '../../ui/class-names.ts'
import { useWindow } from '../../ui/windowed.ts'
import type { RequestColumn } from './columns.tsx'
import { RequestItem } from './request-list.tsx'

const rowHeight = 40
const itemHeight = 57

type Props = {
  readonly rows: readonly LedgerRequest[]
  readonly totals: RequestTotals | undefined
  readonly openId: string | undefined
}

/** Only the rows near the screen are in the page: ten thousand scroll like fifty. */
export function RequestTable({ rows, totals, openId, columns }: Props & { columns: readonly RequestColumn[] }) {
  const body = useRef<HTMLTableSectionElement>(null)
  const [first, last] = useWindow(body, rows.length, rowHeight)
  return (
    <div className="overflow-x-auto">
      <table className="w-full border-collapse text-left" aria-rowcount={rows.length}>
        <caption className="sr-only">Requests, newest first</caption>
        <thead>
          <tr className="border-b border-rule text-sm text-muted">
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
        <tbody ref={body}>
          {first > 0 && <Gap columns={columns.length} height={first * rowHeight} />}
          {rows.slice(first, last).map((row, at) => (
            <tr
              key={row.id}
              aria-rowindex={first + at + 1}
              data-testid="request-row"
              className={classNames(
                'relative h-10 border-b border-rule hover:bg-sunken has-focus-visible:outline-2 has-focus-visible:-outline-offset-2 has-focus-visible:outline-link',
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
          {last < rows.length && <Gap columns={columns.length} height={(rows.length - last) * rowHeight} />}
        </tbody>
        {totals !== undefined && (
          <tfoot>
            <tr className="border-t border-edge font-medium" data-testid="totals" data-charged={totals.charged_atomic}>
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
export function RequestRows({ rows, totals }: Props) {
  const list = useRef<HTMLUListElement>(null)
  const [first, last] = useWindow(list, rows.length, itemHeight)
  return (
    <>
      <ul ref={list}>
        {first > 0 && <li aria-hidden="true" style={{ height: first * itemHeight }} />}
        {rows.slice(first, last).map((row) => (
          <RequestItem key={row.id} request={row} />
        ))}
        {last < rows.length && <li aria-hidden="true" style={{ height: (rows.length - last) * itemHeight }} />}
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

function Gap({ columns, height }: { columns: number; height: number }) {
  return (
    <tr>
      <td colSpan={columns} style={{ height }} />
    </tr>
  )
}

function totalOf(column: string, totals: RequestTotals): string {
  switch (column) {
    case 'time':
      return `${totals.complete ? '' : 'First '}${formatCount(totals.requests)} ${totals.requests === 1 ? 'request' : 'requests'}`
    case 'in':
      return formatCount(totals.prompt_tokens)
    case 'out':
      return formatCount(totals.completion_tokens)
    case 'searches':
      return totals.search_calls === 0 ? '–' : formatCount(totals.search_calls)
    case 'quote':
      return formatCharge(atomic(totals.quote_atomic))
    case 'charged':
      return formatCharge(atomic(totals.charged_atomic))
    default:
      return ''
  }
}
