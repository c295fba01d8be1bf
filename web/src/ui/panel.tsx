import type { ReactNode } from 'react'
import { classNames } from './class-names.ts'

type PanelProps = {
  title?: ReactNode
  actions?: ReactNode
  children: ReactNode
  className?: string | undefined
  /** Content that brings its own padding, such as a table. */
  flush?: boolean
  testId?: string | undefined
}

/** A sheet of the ledger: a rule around it, no shadow. */
export function Panel({ title, actions, children, className, flush = false, testId }: PanelProps) {
  return (
    <section className={classNames('min-w-0 rounded-md border border-rule bg-surface', className)} data-testid={testId}>
      {(title !== undefined || actions !== undefined) && (
        <header className="flex min-h-12 flex-wrap items-center justify-between gap-x-4 gap-y-2 border-b border-rule px-4 py-2">
          {title !== undefined && <h2 className="text-base">{title}</h2>}
          {actions !== undefined && <div className="flex flex-wrap items-center gap-2">{actions}</div>}
        </header>
      )}
      <div className={flush ? undefined : 'p-4'}>{children}</div>
    </section>
  )
}

type NoticeProps = { tone?: 'plain' | 'held' | 'error' | 'accent'; children: ReactNode; role?: 'alert' | 'status' }

/** A short remark that must be seen: what, whether money moved, what to do. */
export function Notice({ tone = 'plain', children, role }: NoticeProps) {
  const tones = {
    plain: 'border-rule bg-sunken',
    held: 'border-held bg-held-wash',
    error: 'border-error bg-error-wash',
    accent: 'border-accent bg-accent-wash',
  }
  return (
    <div role={role} className={classNames('rounded-md border-l-2 px-3 py-2', tones[tone])}>
      {children}
    </div>
  )
}

export function EmptyState({ title, children, action }: { title: string; children?: ReactNode; action?: ReactNode }) {
  return (
    <div className="mx-auto flex max-w-md flex-col items-center gap-2 px-6 py-12 text-center">
      <p className="text-lg font-medium">{title}</p>
      {children !== undefined && <div className="text-muted">{children}</div>}
      {action !== undefined && <div className="mt-2">{action}</div>}
    </div>
  )
}

/** A value for `Facts` in the typeface of amounts and addresses. */
export function numeric(text: string): ReactNode {
  return <span className="num wrap-anywhere">{text}</span>
}

/** A label and its value; a value that is undefined, null or false has no row. */
export type Fact = readonly [label: string, value: ReactNode]

/** Label and value in two columns, as on a statement. */
export function Facts({ rows }: { rows: readonly Fact[] }) {
  const shown = rows.filter(([, value]) => value !== undefined && value !== null && value !== false)
  return (
    <dl className="grid grid-cols-[fit-content(50%)_1fr] gap-x-6 gap-y-1.5">
      {shown.map(([label, value]) => (
        <div key={label} className="contents">
          <dt className="min-w-24 text-muted">{label}</dt>
          <dd className="min-w-0 break-words">{value}</dd>
        </div>
      ))}
    </dl>
  )
}
