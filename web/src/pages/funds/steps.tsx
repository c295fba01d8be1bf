import type { Deposit, Withdrawal } from '../../api/shapes.ts'
import { classNames } from '../../ui/class-names.ts'
import { Icon } from '../../ui/icon.tsx'
import { Time } from '../../ui/time.tsx'
import { Transaction } from '../requests/request-drawer.tsx'

type StepList = Deposit['steps'] | Withdrawal['steps']

const words: Readonly<Record<StepList[number]['name'], string>> = {
  seen: 'Seen on chain',
  swept: 'Final and moved to the gateway',
  credited: 'Credited',
  requested: 'Requested',
  settled: 'Earlier charges settled on chain',
  sent: 'Sent',
  confirmed: 'Confirmed',
}

type StepsProps = { steps: StepList; failed: boolean; reason: string | null; explorer: string | null }

/** How far money has come, step by step, with the transaction that shows it. */
export function Steps({ steps, failed, reason, explorer }: StepsProps) {
  return (
    <ol className="flex flex-col gap-1">
      {steps.map(({ name, done, at, tx_hash, block }) => (
        <li key={name} className={classNames('grid grid-cols-[16px_1fr] items-start gap-x-2', !done && 'text-muted')}>
          <span className="pt-0.5">
            {done ? <Icon name="check" className="text-accent" /> : <Icon name={failed ? 'cross' : 'held'} />}
          </span>
          <span className="flex flex-wrap items-center gap-x-3">
            {words[name]}
            {at !== null && (
              <span className="text-sm text-muted">
                <Time at={at} show="clock" />
              </span>
            )}
            {block !== null && <span className="num text-sm text-muted">block {block}</span>}
            {tx_hash !== null && <Transaction hash={tx_hash} explorer={explorer} />}
          </span>
        </li>
      ))}
      {failed && (
        <li className="text-error">
          Failed{reason === null ? '' : `: ${reason}`}. The money was returned to your balance or never left it.
        </li>
      )}
    </ol>
  )
}
