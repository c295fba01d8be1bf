import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { call } from '../../api/call.ts'
import { useX402Wallet } from '../../api/session.ts'
import { atomic, formatCharge, formatCount } from '../../money/format.ts'
import type { ChatBody } from '../../snippets/code.ts'

const settleMs = 400

export type Quoted = {
  readonly keyId: string
  readonly body: ChatBody
  /** Shown when two models answer. */
  readonly label?: string | undefined
  /** Lowers max tokens to the largest value that is admitted. */
  readonly onAfford: (maxTokens: number) => void
}

/** The maximum cost of this call. Requested after the last keystroke. */
export function QuoteLine({ keyId, body, label, onAfford }: Quoted) {
  const isWalletAccount = useX402Wallet() !== undefined
  const wanted = JSON.stringify({ key_id: keyId, ...body })
  const asked = useSettled(wanted)
  const { data, error, isPlaceholderData } = useQuery({
    queryKey: ['quote', asked],
    queryFn: ({ signal }) => call('POST /api/quote', { body: JSON.parse(asked) }, { signal }),
    retry: false,
    placeholderData: (previous) => previous,
  })
  const name = label !== undefined && <span className="num mr-1.5 text-muted">{label}</span>
  if (error !== null)
    return (
      <p className="text-error" data-testid="quote">
        {name}
        {error.message}
      </p>
    )
  if (data === undefined)
    return (
      <p className="text-muted" data-testid="quote">
        {name}Quoting…
      </p>
    )
  // The amount of another call is no limit of this one.
  if (isPlaceholderData || asked !== wanted)
    return (
      <p className="text-muted" data-testid="quote">
        {name}Quoting… Before your change: at most{' '}
        <span className="num">{formatCharge(atomic(data.quote_atomic))}</span>
      </p>
    )
  return (
    <p data-testid="quote" data-quote={data.quote_atomic} data-model={data.model} role="status">
      {name}At most <span className="num font-medium">{formatCharge(atomic(data.quote_atomic))}</span>
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
      <span className="text-muted">
        {' '}
        · <span className="num">{formatCount(data.input_tokens)}</span> input tokens
      </span>
      {!data.admitted && (
        <span className="mt-1 block text-error">
          {data.refusal?.message ?? 'This request would be refused now.'}{' '}
          {data.affordable_max_tokens > 0 && (
            <button type="button" className="link" onClick={() => onAfford(data.affordable_max_tokens)}>
              Use {formatCount(data.affordable_max_tokens)} max tokens
            </button>
          )}{' '}
          {data.refusal?.code === 'insufficient_balance' && (
            <Link to="/funds" className="link">
              {isWalletAccount ? 'Funds' : 'Deposit'}
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
