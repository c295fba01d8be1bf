import type { ReactNode } from 'react'
import { classNames } from './class-names.ts'
import { useNarrow } from './media.ts'

export type Column<Row> = {
  /** For columns with the same head. */
  readonly id?: string
  readonly head: string
  /** The head is read out, but not shown. */
  readonly isHeadHidden?: boolean
  readonly cell: (row: Row) => ReactNode
  /** Amounts and counts are aligned to the right, on their decimal point. */
  readonly right?: boolean
  readonly className?: string
}

/** A column of amounts or counts. */
export function numbers<Row>(head: string, cell: (row: Row) => ReactNode): Column<Row> {
  return { head, cell, right: true }
}

type Props<Row> = {
  label: string
  columns: readonly Column<NoInfer<Row>>[]
  rows: readonly Row[]
  rowKey: (row: Row) => string
  footer?: readonly ReactNode[]
  /** A row on a narrow screen, where the table becomes a list. Without it the table scrolls by itself. */
  item?: (row: Row) => ReactNode
  rowTestId?: string
  /** False where a menu in a row must not be cut off; the cells then stand closer together. */
  canScroll?: boolean
}

/** A plain table: rules between rows, nothing else. */
export function Table<Row>({ label, columns, rows, rowKey, footer, item, rowTestId, canScroll = true }: Props<Row>) {
  const isList = useNarrow() && item !== undefined
  if (isList)
    return (
      <ul>
        {rows.map((row) => (
          <li key={rowKey(row)} data-testid={rowTestId} className="border-b border-rule p-4 last:border-b-0">
            {item(row)}
          </li>
        ))}
      </ul>
    )
  const pad = canScroll ? 'px-4' : 'px-3 first:pl-4'
  return (
    <section
      className={canScroll ? 'overflow-x-auto' : undefined}
      aria-label={label}
      tabIndex={canScroll ? 0 : undefined}
    >
      <table className="w-full border-collapse text-left">
        <caption className="sr-only">{label}</caption>
        <thead>
          <tr className="border-b border-rule text-sm text-muted">
            {columns.map(({ id, head, isHeadHidden, right, className }) => (
              <th
                key={id ?? head}
                scope="col"
                className={classNames(pad, 'py-2 font-normal whitespace-nowrap', right && 'text-right', className)}
              >
                {isHeadHidden ? <span className="sr-only">{head}</span> : head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={rowKey(row)} data-testid={rowTestId} className="border-b border-rule last:border-b-0">
              {columns.map(({ id, head, cell, right, className }, at) => (
                <td key={id ?? head} className={cellClass(right, pad, at === 0 && 'whitespace-nowrap', className)}>
                  {cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
        {footer !== undefined && (
          <tfoot>
            <tr className="border-t border-edge font-medium">
              {columns.map(({ id, head, right }, at) => (
                <td key={id ?? head} className={cellClass(right, pad)}>
                  {footer[at]}
                </td>
              ))}
            </tr>
          </tfoot>
        )}
      </table>
    </section>
  )
}

function cellClass(right: boolean | undefined, ...more: readonly (string | false | undefined)[]): string {
  return classNames('py-2', right && 'num text-right whitespace-nowrap', ...more)
}
