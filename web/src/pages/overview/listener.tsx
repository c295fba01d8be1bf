import { useMutation } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import { ApiError, call } from '../../api/call.ts'
import type { LedgerRequest, Session, StreamEvent } from '../../api/shapes.ts'
import { atomic, formatCharge } from '../../money/format.ts'
import { useLiveEvents } from '../../shell/live.tsx'
import { firstCall } from '../../snippets/code.ts'
import { Button } from '../../ui/button.tsx'
import { Notice } from '../../ui/panel.tsx'
import { RequestMark } from '../../ui/state-mark.tsx'
import { Time } from '../../ui/time.tsx'
import { RefusalNotice } from '../requests/request-list.tsx'

const shownMax = 3

type Unidentified = Extract<StreamEvent, { readonly type: 'unidentified' }>

/** Waits for the first request and shows its result, also if it was refused. */
export function Listener({ session, keyId }: { session: Session; keyId: string | undefined }) {
  const [heard, setHeard] = useState<readonly LedgerRequest[]>([])
  const [unidentified, setUnidentified] = useState<Unidentified>()
  useLiveEvents((event) => {
    if (event.type === 'unidentified') setUnidentified(event)
    if (event.type !== 'request') return
    setHeard((known) => [event.request, ...known.filter(({ id }) => id !== event.request.id)].slice(0, shownMax))
  })
  const run = useMutation({
    mutationFn: (id: string) => {
      const { body } = firstCall(session, '')
      return call('POST /api/playground', {
        body: { key_id: id, ...body, messages: [...body.messages] as never },
      })
    },
  })
  // A refusal that has a row is shown by its row.
  const refusedId = run.error instanceof ApiError ? run.error.requestId : undefined
  return (
    <div data-testid="listener" className="flex flex-col gap-2" aria-live="polite">
      <div className="flex flex-wrap items-center gap-3">
        {heard.length === 0 && (
          <p className="flex items-center gap-2 text-muted">
            <span className="size-2 motion-safe:animate-pulse rounded-full bg-accent" aria-hidden="true" />
            Waiting for your first request
          </p>
        )}
        {keyId !== undefined && (
          <Button small icon="play" onClick={() => run.mutate(keyId)} busy={run.isPending}>
            Run it for me
          </Button>
        )}
      </div>
      {heard.map((request) => (
        <Heard key={request.id} request={request} />
      ))}
      {unidentified !== undefined && <UnidentifiedCall call={unidentified} />}
      {run.error !== null && !heard.some(({ id }) => id === refusedId) && (
        <Notice tone="error">{run.error.message}</Notice>
      )}
      <p className="text-sm text-muted">
        Requests with an invalid key appear here only if they come from your IP address, because an invalid key belongs
        to no account.
      </p>
    </div>
  )
}

/** Only the reason: the service never shows any part of a key that was sent. */
function UnidentifiedCall({ call: { at, code, message } }: { call: Unidentified }) {
  return (
    <Notice tone="error">
      <p className="flex flex-wrap items-center gap-x-3" data-testid="unidentified">
        <RequestMark status="refused" />
        <code className="num">{code}</code>
        <Time at={at} show="clock" />
      </p>
      <p className="mt-1">
        {message} The request came from your IP address. You were charged {formatCharge(0n)}.
      </p>
    </Notice>
  )
}

function Heard({ request }: { request: LedgerRequest }) {
  const explain = (
    <Link to="/requests/$id" params={{ id: request.id }} className="link">
      Explain
    </Link>
  )
  if (request.status === 'refused' || request.status === 'failed')
    return (
      <RefusalNotice
        code={request.error?.code ?? 'internal_error'}
        after={`You were charged ${formatCharge(atomic(request.charged_atomic))}. `}
      >
        <p className="flex flex-wrap items-center gap-x-3">
          <RequestMark status={request.status} />
          <code className="num">{request.error?.code}</code>
          <Time at={request.created_at} show="clock" />
          {explain}
        </p>
      </RefusalNotice>
    )
  return (
    <p className="arrive flex flex-wrap items-center gap-x-4 gap-y-1 rounded-md border border-rule px-3 py-2">
      <RequestMark status={request.status} />
      <span>{request.model}</span>
      <span className="num">{formatCharge(atomic(request.charged_atomic))}</span>
      <Time at={request.created_at} show="clock" />
      {explain}
    </p>
  )
}
