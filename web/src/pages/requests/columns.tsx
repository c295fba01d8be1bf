import { Link } from '@tanstack/react-router'
import type { LedgerRequest } from '../../api/shapes.ts'
import { atomic, formatCharge, formatCount } from '../../money/format.ts'
import { formatMs } from '../../ui/format-time.ts'
import { Icon } from '../../ui/icon.tsx'
import { RequestMark } from '../../ui/state-mark.tsx'
import { type Column, numbers } from '../../ui/table.tsx'
import { Time } from '../../ui/time.tsx'
import { detail } from './request-words.ts'

export type RequestColumn = Column<LedgerRequest> & { readonly id: string }

/** All columns, the least important last: a narrow window cuts those off. The first cannot be hidden: it is the row's link. */
export const requestColumns: readonly RequestColumn[] = [
  {
    id: 'time',
    head: 'Time',
    cell: (request) => (
      <Link
        to="/requests/$id"
        params={{ id: request.id }}
        search={true}
        data-row
        className="whitespace-nowrap outline-none after:absolute after:inset-0"
      >
        <Time at={request.created_at} />
        {request.stream && (
          <span className="ml-1.5 inline-flex translate-y-0.5 text-muted" title="Streamed">
            <Icon name="stream" size={14} />
            <span className="sr-only">streamed</span>
          </span>
        )}
      </Link>
    ),
  },
  {
    id: 'status',
    head: 'Status',
    cell: (request) => (
      <span title={detail(request)} className="flex items-center gap-2 whitespace-nowrap">
        <RequestMark status={request.status} />
        {(request.error !== null || request.status === 'cancelled') && (
          <span className="text-sm text-muted">{detail(request)}</span>
        )}
      </span>
    ),
  },
  { id: 'charged', ...numbers('Charged', ({ charged_atomic }) => formatCharge(atomic(charged_atomic))) },
  { id: 'model', head: 'Model', cell: ({ model }) => <span className="whitespace-nowrap">{model ?? '–'}</span> },
  { id: 'key', head: 'Key', cell: ({ key }) => <span className="block max-w-36 truncate">{key.name}</span> },
  { id: 'latency', ...numbers('Latency', ({ latency }) => formatMs(latency.total_ms)) },
  { id: 'in', ...numbers('In', ({ usage }) => (usage === null ? '–' : formatCount(usage.prompt_tokens))) },
  { id: 'out', ...numbers('Out', ({ usage }) => (usage === null ? '–' : formatCount(usage.completion_tokens))) },
  { id: 'searches', ...numbers('Searches', ({ cost }) => cost.search_calls || '–') },
  // A refused request may have no quote; showing 0 would look like a price.
  {
    id: 'quote',
    ...numbers('Quote', ({ status, quote_atomic: quote }) =>
      status === 'refused' ? '–' : formatCharge(atomic(quote)),
    ),
  },
]
