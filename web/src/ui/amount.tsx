import type { ReactNode } from 'react'
import { formatAmount, formatExact } from '../money/format.ts'
import { classNames } from './class-names.ts'
import { useCopy } from './copy.tsx'

/** A sum, shortened for reading; its exact value is in the title. */
export function Sum({ amount, className }: { amount: bigint; className?: string }) {
  return (
    <span className={classNames('num', className)} title={formatExact(amount)}>
      {formatAmount(amount)}
    </span>
  )
}

/** A balance. Hover or focus shows every decimal, a click copies them. */
export function Balance({ amount, label, className }: { amount: bigint; label: string; className?: string }) {
  const exact = formatExact(amount)
  const { copied, blocked, copy } = useCopy(exact.replace(/[^\d.−-]/g, ''))
  return (
    <Tooltip text={blocked ? 'Copying was blocked' : copied ? 'Copied' : exact}>
      <button
        type="button"
        onClick={copy}
        aria-label={`${label} ${formatAmount(amount)}, exactly ${exact}. Copy`}
        className={classNames('num rounded-sm text-left', className)}
      >
        {formatAmount(amount)}
      </button>
    </Tooltip>
  )
}

/** Shown on hover and on focus within. Its text is also in the accessible name of its parent. */
function Tooltip({ text, children }: { text: string; children: ReactNode }) {
  return (
    <span className="group/tip relative inline-flex">
      {children}
      <span
        aria-hidden="true"
        className="num pointer-events-none absolute top-full left-0 z-30 mt-1 hidden rounded-sm bg-ink px-2 py-1 text-xs whitespace-nowrap text-paper group-focus-within/tip:block group-hover/tip:block"
      >
        {text}
      </span>
    </span>
  )
}
