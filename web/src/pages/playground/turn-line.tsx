import { queryOptions, useQueries, useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { requestQuery } from '../../api/queries.ts'
import type { LedgerRequest } from '../../api/shapes.ts'
import { atomic, formatCharge, formatCount, formatExact } from '../../money/format.ts'
import { formatMs } from '../../ui/format-time.ts'
import { Icon } from '../../ui/icon.tsx'
import { RequestMark } from '../../ui/state-mark.tsx'
import { mostHeld, returned } from '../requests/request-words.ts'
import type { Answer } from './conversation.ts'

/** The ledger row of a turn. Only open requests are polled: a long conversation has many ended ones. */
function turnQuery(id: string) {
  return queryOptions({
    ...requestQuery(id),
    retry: false,
    refetchInterval: ({ state }) => (state.data?.status === 'held' ? 1_000 : false),
  })
}

/** The running cost of an answer while it streams, then its charge. */
export function TurnLine({ answer }: { answer: Answer }) {
  const { requestId, state } = answer
  const isLive = state === 'running' || state === 'stopping'
  const row = useQuery({ ...turnQuery(requestId ?? ''), enabled: requestId !== undefined && !isLive })
  if (isLive) return <Meter answer={answer} />
  if (requestId === undefined || row.data === undefined) return null
  if (row.data.status === 'held') return <p className="text-sm text-muted">Ending the request…</p>
  return <Final request={row.data} />
}

/** From the wire: the service reports the cost so far. */
function Meter({ answer: { runningCost, state } }: { answer: Answer }) {
  if (runningCost === undefined) {
    const words = state === 'stopping' ? 'Stopping…' : 'Waiting for the first token…'
    return <p className="text-sm text-muted">{words}</p>
  }
  return (
    <p
      data-testid="meter"
      data-cost={runningCost.costAtomic}
      className="flex flex-wrap items-center gap-x-2 text-sm text-held"
    >
      <Icon name="held" size={14} />
      <span className="num font-medium">{formatCharge(atomic(runningCost.costAtomic))}</span> so far
      <span className="text-muted">
        <span className="num">{formatCount(runningCost.promptTokens)}</span> in,{' '}
        <span className="num">{formatCount(runningCost.completionTokens)}</span> out
      </span>
    </p>
  )
}

function Final({ request }: { request: LedgerRequest }) {
  const { usage, latency } = request
  return (
    <div
      className="flex flex-wrap items-center gap-x-3 gap-y-0.5 text-sm text-muted"
      data-testid="final"
      data-charged={request.charged_atomic}
      data-request={request.id}
    >
      {request.status !== 'succeeded' && <RequestMark status={request.status} />}
      {usage !== null && (
        <span>
          <span className="num">{formatCount(usage.prompt_tokens)}</span> in,{' '}
          <span className="num">{formatCount(usage.completion_tokens)}</span> out
          {usage.reasoning_tokens > 0 && (
            <>
              {' '}
              (<span className="num">{formatCount(usage.reasoning_tokens)}</span> reasoning)
            </>
          )}
        </span>
      )}
      <span>
        Charged <span className="num font-medium text-ink">{formatCharge(atomic(request.charged_atomic))}</span>
      </span>
      <span>
        Held <span className="num">{formatCharge(mostHeld(request))}</span>
      </span>
      {latency.total_ms !== null && <span className="num">{formatMs(latency.total_ms)}</span>}
      <Link to="/requests/$id" params={{ id: request.id }} className="link">
        Explain
      </Link>
    </div>
  )
}

/** How an answer ended that did not end by itself, and what that cost. */
export function EndingNote({ answer }: { answer: Answer }) {
  const row = useQuery({ ...turnQuery(answer.requestId ?? ''), enabled: answer.requestId !== undefined })
  const request = row.data?.status === 'held' ? undefined : row.data
  if (answer.state === 'done' && answer.finishReason === 'length')
    return <p className="text-sm text-held">Cut off at max tokens. Raise max tokens to get longer answers.</p>
  const cause = { stopped: 'Stopped.', interrupted: 'The connection was closed while this answer streamed.' }[
    answer.state as string
  ]
  if (cause === undefined) return null
  return (
    <p className="text-sm" data-testid="ending">
      {cause} {request === undefined ? 'You are charged only for what was produced.' : chargeWords(request)}
    </p>
  )
}

function chargeWords(request: LedgerRequest): string {
  const charged = atomic(request.charged_atomic)
  if (charged === 0n) return 'You were charged nothing.'
  const words = `You were charged ${formatCharge(charged)} for what was produced`
  return returned(request) === 0n ? `${words}.` : `${words}; ${formatCharge(returned(request))} was returned.`
}

/** The sum of all charges of a conversation, including those of removed answers. */
export function ConversationTotal({ requestIds, label }: { requestIds: readonly string[]; label: string }) {
  const rows = useQueries({ queries: requestIds.map((id) => turnQuery(id)) })
  const ended = rows.flatMap(({ data }) => (data === undefined || data.status === 'held' ? [] : data))
  const total = ended.reduce((sum, row) => sum + BigInt(row.charged_atomic), 0n)
  if (ended.length === 0) return null
  return (
    <span
      className="text-sm text-muted"
      data-testid="conversation-total"
      data-charged={String(total)}
      data-requests={ended.length}
    >
      {label}{' '}
      <span className="num font-medium text-ink" title={formatExact(total)}>
        {formatCharge(total)}
      </span>{' '}
      for {ended.length} {ended.length === 1 ? 'request' : 'requests'}
    </span>
  )
}
