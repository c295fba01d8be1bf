import type { Check } from '../../../../src/receipts/verify-receipt.ts'
import { Notice } from '../../ui/panel.tsx'
import { type Mark, StateMark } from '../../ui/state-mark.tsx'

export type Verdict = 'proved' | 'pending' | 'unknown-issuer' | 'wrong'

type ChecksProps = { checks: readonly Check[]; verdict: Verdict; word: string; nameOf: (check: Check) => string }

/** The checks of a receipt or a bundle, under what they add up to. */
export function Checks({ checks, verdict, word, nameOf }: ChecksProps) {
  return (
    <section
      aria-label="Checks"
      data-testid="checks"
      data-ok={verdict === 'proved'}
      data-verdict={verdict}
      className="rounded-md border border-rule bg-surface"
    >
      <p className="border-b border-rule px-4 py-3 text-lg" role="status">
        <StateMark mark={verdictMarks[verdict]} word={word} />
      </p>
      <ul>
        {checks.map((check) => (
          <li
            key={check.name}
            data-testid={`check-${check.name}`}
            data-ok={check.ok}
            data-pending={check.pending}
            className="border-b border-rule px-4 py-2 last:border-b-0"
          >
            <StateMark mark={check.pending ? 'pending' : check.ok ? 'settled' : 'failed'} word={nameOf(check)} />
            <p className="num text-sm wrap-anywhere text-muted">{check.detail}</p>
          </li>
        ))}
      </ul>
    </section>
  )
}

const verdictMarks: Readonly<Record<Verdict, Mark>> = {
  proved: 'settled',
  pending: 'pending',
  'unknown-issuer': 'pending',
  wrong: 'failed',
}

/** In place of the checks: why there is nothing to check. */
export function Unreadable({ problem }: { problem: string }) {
  return (
    <Notice tone="error" role="alert">
      <StateMark mark="failed" word={problem} />
    </Notice>
  )
}
