import type { UseQueryResult } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { ApiError, mayBeMade, UnreachableError } from '../api/call.ts'
import { Button } from './button.tsx'
import { classNames } from './class-names.ts'
import { CopyableId } from './copy.tsx'
import { formatAge } from './format-time.ts'
import { Notice } from './panel.tsx'
import { useNow } from './time.tsx'

type Fields = 'data' | 'error' | 'refetch' | 'dataUpdatedAt' | 'isFetching' | 'failureReason' | 'fetchStatus'
/** A query of one answer or of pages. */
export type Query<Data> = Pick<UseQueryResult<Data>, Fields>

/** Loaded data, a skeleton while it loads, or the error. Data that could not be refreshed stays, marked with its age. */
export function Loaded<Data>({
  query,
  skeleton = <Skeleton />,
  children,
}: {
  query: Query<Data>
  skeleton?: ReactNode
  children: (data: Data) => ReactNode
}) {
  const { data, error, refetch, isFetching, failureReason, fetchStatus } = query
  // Said while it is retried: a page that waits in silence for seconds looks broken.
  const problem = error ?? (failureReason instanceof UnreachableError ? failureReason : null)
  if (data === undefined && fetchStatus === 'paused')
    return <Notice role="status">You are offline. This page loads when the connection is back.</Notice>
  if (data === undefined && problem === null) return <div aria-busy="true">{skeleton}</div>
  if (data === undefined) return <ErrorPanel error={problem!} onRetry={() => void refetch()} busy={isFetching} />
  return (
    <>
      {error !== null && <StaleNotice query={query} />}
      {children(data)}
    </>
  )
}

type ErrorPanelProps = {
  error: Error
  /** Of a change that must not simply be made again: what to do when it may have been made. */
  ifMade?: string | undefined
  onRetry?: () => void
  busy?: boolean
}

export function ErrorPanel({ error, ifMade, onRetry, busy = false }: ErrorPanelProps) {
  return (
    <Notice tone="error" role="alert">
      <p className="font-medium">{error.message}</p>
      {ifMade !== undefined && mayBeMade(error) && <p className="mt-1">{ifMade}</p>}
      {/* Only for faults of ours, which support looks up by it. Below "not found" it would read like the id that was asked for. */}
      {error instanceof ApiError && error.status >= 500 && error.requestId !== '' && (
        <p className="mt-1 flex items-center gap-2 text-sm text-muted">
          Error reference <CopyableId id={error.requestId} label="error reference" short />
        </p>
      )}
      {onRetry !== undefined && (
        <Button small className="mt-2" onClick={onRetry} busy={busy}>
          Retry
        </Button>
      )}
    </Notice>
  )
}

function StaleNotice({ query }: { query: Query<unknown> }) {
  const now = useNow(5_000)
  return (
    <Notice tone="held" role="status">
      <span className="flex flex-wrap items-center justify-between gap-2">
        <span>
          Last updated {formatAge(now - query.dataUpdatedAt)}; refreshing failed. {query.error?.message}
        </span>
        <Button small onClick={() => void query.refetch()} busy={query.isFetching}>
          Retry
        </Button>
      </span>
    </Notice>
  )
}

/** Bars where lines of text will be. */
export function Skeleton({
  lines = 3,
  height = 16,
  inset = false,
}: {
  lines?: number
  height?: number
  inset?: boolean
}) {
  return (
    <div className={classNames('flex flex-col gap-3', inset && 'p-4')} aria-hidden="true">
      {Array.from({ length: lines }, (_, line) => (
        <div
          // biome-ignore lint/suspicious/noArrayIndexKey: the bars are all alike and never move.
          key={line}
          className="skeleton"
          style={{ height, width: `${100 - ((line * 17) % 40)}%` }}
        />
      ))}
    </div>
  )
}
