import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { useX402Wallet } from '../../api/session.ts'
import type { LedgerRequest } from '../../api/shapes.ts'
import { atomic, formatCharge } from '../../money/format.ts'
import { Notice, Panel } from '../../ui/panel.tsx'
import { RequestMark } from '../../ui/state-mark.tsx'
import { Time } from '../../ui/time.tsx'
import { explainCode } from './refusals.ts'
import { detail } from './request-words.ts'

type RecentProps = { requests: readonly LedgerRequest[]; empty: string; all: string; search?: Record<string, string> }

/** The newest requests on another page, and the way to all of them. */
export function RecentRequests({ requests, empty, all, search = {} }: RecentProps) {
  const link = (
    <Link to="/requests" search={search as never} className="text-sm link">
      {all}
    </Link>
  )
  return (
    <Panel flush title="Recent requests" actions={link}>
      {requests.length === 0 ? <p className="p-4 text-muted">{empty}</p> : <RequestList requests={requests} />}
    </Panel>
  )
}

/** Requests in two lines each: for narrow screens, and for the few newest on other pages. */
export function RequestList({ requests }: { requests: readonly LedgerRequest[] }) {
  return (
    <ul>
      {requests.map((request) => (
        <RequestItem key={request.id} request={request} />
      ))}
    </ul>
  )
}

/** Position in a partly rendered list (aria-posinset, aria-setsize). `of` is -1 when the total is unknown. */
type Place = { readonly at: number; readonly of: number }

export function RequestItem({ request, place }: { request: LedgerRequest; place?: Place }) {
  return (
    <li
      data-id={request.id}
      {...(place !== undefined && { 'aria-posinset': place.at, 'aria-setsize': place.of })}
      className="relative grid h-[56px] grid-cols-[1fr_auto] content-center gap-x-4 border-b border-rule px-4 last:border-b-0 hover:bg-sunken has-focus-visible:outline-2 has-focus-visible:-outline-offset-2 has-focus-visible:outline-link"
    >
      <Link
        to="/requests/$id"
        params={{ id: request.id }}
        search={true}
        data-row
        className="truncate font-medium outline-none after:absolute after:inset-0"
      >
        {request.model ?? 'No model'}
      </Link>
      <span className="num text-right">{formatCharge(atomic(request.charged_atomic))}</span>
      <span className="flex min-w-0 items-center gap-x-3 text-sm text-muted">
        <RequestMark status={request.status} />
        <span className="truncate">{detail(request)}</span>
      </span>
      <span className="text-right text-sm text-muted">
        <Time at={request.created_at} />
      </span>
    </li>
  )
}

type RefusalProps = { code: string; children: ReactNode; after?: ReactNode }

/** Why a request was refused or failed, under what is known of it, and the page where it can be mended. */
export function RefusalNotice({ code, children, after }: RefusalProps) {
  const { cause, remedy, to } = explainCode(code, useX402Wallet() !== undefined)
  return (
    <Notice tone="error">
      {children}
      <p className="mt-1">
        {cause} {remedy} {after}
        {to !== undefined && (
          <Link to={to} className="link">
            Fix it
          </Link>
        )}
      </p>
    </Notice>
  )
}
