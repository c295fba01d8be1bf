import type { ReactNode } from 'react'

/** Shown on hover and on focus within. What it says is also in the accessible name of what it hangs on. */
export function Tooltip({ text, children }: { text: string; children: ReactNode }) {
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
