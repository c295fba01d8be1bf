import { type ReactNode, useState } from 'react'
import { Loaded, type Query } from '../ui/loaded.tsx'
import { Panel } from '../ui/panel.tsx'
import { ShownOnceDialog, type ShownOnceProps } from '../ui/shown-once-dialog.tsx'

type Show = (secret: string) => void

type Props<Row> = {
  title: string
  testId?: string
  /** What the resources are for. */
  about?: ReactNode
  query: Query<{ readonly data: readonly Row[] }>
  /** What an empty list says. */
  empty?: string
  actions?: (show: Show) => ReactNode
  /** One `Item` for each; `Show` shows the secret that a change returned. */
  item: (row: Row, show: Show) => ReactNode
  /** How such a secret is shown. */
  secret?: Omit<ShownOnceProps, 'value' | 'onClose'>
  /** Below the list. */
  children?: ReactNode
}

/** What an account has several of: the list, what can be done with each, and the way to another one. */
export function ResourcePanel<Row>({
  title,
  testId,
  about,
  query,
  empty,
  actions,
  item,
  secret,
  children,
}: Props<Row>) {
  // The panel keeps a secret until it was seen: rows and their dialogs come and go.
  const [value, show] = useState<string>()
  return (
    <Panel title={title} testId={testId} actions={actions?.(show)}>
      {about !== undefined && <p className="mb-3 text-sm text-muted">{about}</p>}
      <Loaded query={query}>
        {({ data }) => (
          <>
            {data.length === 0 && empty !== undefined && <p className="text-muted">{empty}</p>}
            <ul className="flex flex-col gap-3">{data.map((row) => item(row, show))}</ul>
          </>
        )}
      </Loaded>
      {children}
      {secret !== undefined && value !== undefined && (
        <ShownOnceDialog {...secret} value={value} onClose={() => show(undefined)} />
      )}
    </Panel>
  )
}

type ItemProps = {
  name: ReactNode
  /** A line each; what is false or undefined has none. */
  notes?: readonly ReactNode[]
  actions?: ReactNode
  testId?: string
  children?: ReactNode
}

/** An entry of a list: its name, what to know of it, and what can be done with it. */
export function Item({ name, notes = [], actions, testId, children }: ItemProps) {
  return (
    <li data-testid={testId}>
      <span className="flex flex-wrap items-start justify-between gap-x-4 gap-y-1">
        <span className="min-w-0 flex-1 basis-48">
          <span className="block truncate">{name}</span>
          {notes.filter(Boolean).map((note, at) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: the lines of one entry do not move.
            <span key={at} className="block text-sm text-muted">
              {note}
            </span>
          ))}
        </span>
        <span className="flex gap-2">{actions}</span>
      </span>
      {children}
    </li>
  )
}
