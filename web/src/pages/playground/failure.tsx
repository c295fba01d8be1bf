import { Link } from '@tanstack/react-router'
import { useX402Wallet } from '../../api/session.ts'
import { formatCount } from '../../money/format.ts'
import { Button, buttonClass } from '../../ui/button.tsx'
import { Notice } from '../../ui/panel.tsx'
import { explainCode } from '../requests/refusals.ts'
import type { AnswerError } from './conversation.ts'

/** A call that was refused or failed: what happened, and what can be done about it here. */
export function Failure({
  error,
  keyId,
  problem,
  onRetry,
  onAfford,
}: {
  error: AnswerError
  keyId: string
  /** Why no call can be made with the settings. */
  problem: string | undefined
  onRetry: (() => void) | undefined
  onAfford: (maxTokens: number) => void
}) {
  const { message, code, affordableMaxTokens } = error
  const isWalletAccount = useX402Wallet() !== undefined
  const { remedy, to } = explainCode(code, isWalletAccount)
  return (
    <Notice tone="error" role="alert">
      <p className="font-medium">{message}</p>
      {code !== '' && <p className="mt-1 text-sm">{remedy}</p>}
      <div className="mt-2 flex flex-wrap gap-2">
        {code === 'insufficient_balance' && (
          <Link to="/funds" className={buttonClass({ small: true })}>
            {isWalletAccount ? 'Funds' : 'Deposit'}
          </Link>
        )}
        {keyId !== '' && to === '/keys' && (
          <Link to="/keys/$id" params={{ id: keyId }} className={buttonClass({ small: true })}>
            Open the key
          </Link>
        )}
        {affordableMaxTokens !== undefined && (
          <Button small onClick={() => onAfford(affordableMaxTokens)}>
            Use {formatCount(affordableMaxTokens)} max tokens
          </Button>
        )}
        {onRetry !== undefined && (
          <Button small onClick={onRetry} disabled={problem !== undefined} title={problem}>
            Try again
          </Button>
        )}
      </div>
    </Notice>
  )
}
