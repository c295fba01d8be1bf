import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { call } from '../../api/call.ts'
import { atomic, formatCharge, formatCount } from '../../money/format.ts'
import { formProblem, type PlaygroundBody, type PlaygroundForm } from './playground-form.ts'

const settleMs = 400

/** The most this call can cost, asked once typing has stopped. */
export function QuoteLine({ form, body }: { form: PlaygroundForm; body: PlaygroundBody }) {
  const ready = formProblem(form) === undefined
  const asked = useSettled(ready ? JSON.stringify({ key_id: form.keyId, ...body }) : '')
  const { data, error } = useQuery({
    queryKey: ['quote', asked],
    queryFn: ({ signal }) => call('createPlaygroundQuote', { body: JSON.parse(asked) }, { signal }),
    enabled: asked !== '',
    retry: false,
    placeholderData: (previous) => previous,
  })
  if (!ready)
    return (
      <p className="text-muted" data-testid="quote">
        {formProblem(form)}
      </p>
    )
  if (error !== null)
    return (
      <p className="text-error" data-testid="quote">
        {error.message}
      </p>
    )
  if (data === undefined)
    return (
      <p className="text-muted" data-testid="quote">
        Quoting…
      </p>
    )
  return (
    <p data-testid="quote" data-quote={data.quote_atomic} role="status">
      At most <span className="num font-medium">{formatCharge(atomic(data.quote_atomic))}</span>
      {data.typical_atomic !== null && (
        <>
          , typically <span className="num">{formatCharge(atomic(data.typical_atomic))}</span>
        </>
      )}
      {atomic(data.search_max_atomic) > 0n && (
        <>
          , and up to <span className="num">{formatCharge(atomic(data.search_max_atomic))}</span> more if the model
          searches the web
        </>
      )}
      {!data.admitted && (
        <span className="mt-1 block text-error">
          {data.refusal?.message ?? 'This request would be refused now.'}{' '}
          {data.affordable_max_tokens > 0 &&
            `It would be accepted with up to ${formatCount(data.affordable_max_tokens)} max tokens. `}
          {data.refusal?.code === 'insufficient_balance' && (
            <Link to="/funds" className="link">
              Deposit
            </Link>
          )}
        </span>
      )}
    </p>
  )
}

/** A value once it has stayed the same for a while. */
function useSettled(value: string): string {
  const [settled, setSettled] = useState(value)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), settleMs)
    return () => clearTimeout(timer)
  }, [value])
  return settled
}
