import type { ReactNode } from 'react'
import { classNames } from './class-names.ts'

export type Column<Row> = {
  readonly id: string
  readonly head: string
  readonly cell: (row: Row) => ReactNode
  /** Amounts and counts are aligned to the right, on their decimal point. */
  readonly right?: boolean
}

/** A plain table: rules between rows, nothing else. Wider than its place, it scrolls by itself. */
export function Table<Row>({
  label,
  columns,
  rows,
  rowKey,
  footer,
}: {
  label: string
  columns: readonly Column<Row>[]
  rows: readonly Row[]
  rowKey: (row: Row) => string
  footer?: readonly ReactNode[]
}) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard that scrolls it.
    <section className="overflow-x-auto" aria-label={label} tabIndex={0}>
      <table className="w-full border-collapse text-left">
        <caption className="sr-only">{label}</caption>
        <thead>
          <tr className="border-b border-rule text-sm text-muted">
            {columns.map(({ id, head, right }) => (
              <th
                key={id}
                scope="col"
                className={classNames('px-4 py-2 font-normal whitespace-nowrap', right && 'text-right')}
              >
                {head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={rowKey(row)} className="border-b border-rule last:border-b-0">
              {columns.map(({ id, cell, right }, at) => (
                <td
                  key={id}
                  className={classNames(
                    'px-4 py-2',
                    at === 0 && 'whitespace-nowrap',
                    right && 'num text-right whitespace-nowrap',
                  )}
                >
                  {cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
        {footer !== undefined && (
          <tfoot>
            <tr className="border-t border-edge font-medium">
              {footer.map((cell, at) => (
                <td
                  key={columns[at]!.id}
                  className={classNames('px-4 py-2', columns[at]!.right && 'num text-right whitespace-nowrap')}
                >
                  {cell}
                </td>
              ))}
            </tr>
          </tfoot>
        )}
      </table>
    </section>
  )
}
