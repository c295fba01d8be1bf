import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { ApiError } from '../../api/call.ts'
import { requestQuery } from '../../api/queries.ts'
import type { LedgerRequest, Model } from '../../api/shapes.ts'
import { atomic, formatCharge } from '../../money/format.ts'
import { buttonClass } from '../../ui/button.tsx'
import { ErrorPanel } from '../../ui/loaded.tsx'
import { Notice, Panel } from '../../ui/panel.tsx'
import { RequestMark } from '../../ui/state-mark.tsx'
import { returned } from '../requests/charge-sentence.ts'
import { runningCost } from './running-cost.ts'
import type { Run } from './use-completion.ts'

/** The answer as it comes, what it costs so far, and what it cost in the end. */
export function RunPanel({ run, model }: { run: Run; model: Model }) {
  const row = useQuery({
    ...requestQuery(run.requestId ?? ''),
    enabled: run.requestId !== undefined && run.state !== 'running',
  })
  const ended = row.data !== undefined && row.data.status !== 'held' ? row.data : undefined
  return (
    <Panel title="Answer" actions={ended === undefined ? <Meter run={run} model={model} /> : <Final request={ended} />}>
      <div className="flex flex-col gap-3" aria-busy={run.state === 'running'}>
        {run.activity.map((line) => (
          <p key={line} className="text-sm text-muted">
            {line}
          </p>
        ))}
        {run.reasoning !== '' && (
          <details className="text-muted">
            <summary>Reasoning</summary>
            <p className="mt-1 whitespace-pre-wrap">{run.reasoning}</p>
          </details>
        )}
        {run.text !== '' && (
          <p className="whitespace-pre-wrap" data-testid="answer">
            {run.text}
          </p>
        )}
        {run.error !== undefined && <Failure error={run.error} />}
        {ended?.status === 'cancelled' && <Notice>Stopped. You were charged only for the output so far.</Notice>}
      </div>
    </Panel>
  )
}

function Meter({ run, model }: { run: Run; model: Model }) {
  const promptCharacters = run.body.messages.reduce((sum, { content }) => sum + content.length, 0)
  const { prompt, completion } = model.pricing
  const soFar = runningCost({ prompt, completion }, promptCharacters, run.text.length + run.reasoning.length)
  if (run.state === 'failed') return null
  return (
    <p data-testid="meter" className="flex items-baseline gap-2">
      <span className="num font-medium">≈ {formatCharge(soFar)}</span>
      <span className="text-sm text-muted">so far, estimated at 4 characters per token; the final charge is exact</span>
    </p>
  )
}

function Final({ request }: { request: LedgerRequest }) {
  return (
    <p
      className="flex flex-wrap items-center gap-x-3 gap-y-1"
      data-testid="final"
      data-charged={request.charged_atomic}
    >
      <RequestMark status={request.status} />
      <span>
        Charged <span className="num font-medium">{formatCharge(atomic(request.charged_atomic))}</span>, returned{' '}
        <span className="num">{formatCharge(returned(request))}</span>
      </span>
      <Link to="/requests/$id" params={{ id: request.id }} className="link">
        Explain
      </Link>
    </p>
  )
}

function Failure({ error }: { error: Error }) {
  return (
    <div className="flex flex-col gap-2">
      <ErrorPanel error={error} />
      {error instanceof ApiError && error.status === 402 && (
        <div>
          <Link to="/funds" className={buttonClass({ variant: 'primary' })}>
            Deposit
          </Link>
        </div>
      )}
    </div>
  )
}
