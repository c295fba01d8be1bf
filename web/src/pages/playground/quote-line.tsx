import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { call } from '../../api/call.ts'
import type { Model } from '../../api/shapes.ts'
import { atomic, formatCharge, formatCount, formatPrice } from '../../money/format.ts'
import { formProblem, type PlaygroundBody, type PlaygroundForm } from './playground-form.ts'

const settleMs = 400

/** The most this call can cost, asked once typing has stopped. */
export function QuoteLine({ form, body, model }: { form: PlaygroundForm; body: PlaygroundBody; model: Model }) {
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
      {form.search && (
        <span className="text-muted">
          {' '}
          without web search. Each search adds {formatPrice(model.pricing.web_search)} and the tokens of its results.
        </span>
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
