import { type KeyboardEvent, type ReactNode, useId, useRef } from 'react'
import { classNames } from './class-names.ts'

/** Tabs by the book: arrows move between them, the panel names its tab. */
export function Tabs<Value extends string>({
  label,
  value,
  tabs,
  onChange,
  children,
}: {
  label: string
  value: Value
  tabs: readonly (readonly [Value, string])[]
  onChange: (value: Value) => void
  children: ReactNode
}) {
  const id = useId()
  const list = useRef<HTMLDivElement>(null)
  const move = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key]
    if (step === undefined) return
    event.preventDefault()
    const at = tabs.findIndex(([tab]) => tab === value)
    const next = (at + step + tabs.length) % tabs.length
    onChange(tabs[next]![0])
    list.current!.querySelectorAll<HTMLButtonElement>('[role=tab]')[next]!.focus()
  }
  return (
    <div>
      <div
        ref={list}
        role="tablist"
        aria-label={label}
        onKeyDown={move}
        className="flex gap-4 overflow-x-auto border-b border-rule"
      >
        {tabs.map(([tab, text]) => (
          <button
            key={tab}
            type="button"
            role="tab"
            id={`${id}-${tab}`}
            aria-selected={tab === value}
            aria-controls={`${id}-panel`}
            tabIndex={tab === value ? 0 : -1}
            onClick={() => onChange(tab)}
            className={classNames(
              '-mb-px border-b-2 py-2 whitespace-nowrap outline-offset-[-2px]',
              tab === value ? 'border-ink font-medium text-ink' : 'border-transparent text-muted hover:text-ink',
            )}
          >
            {text}
          </button>
        ))}
      </div>
      <div role="tabpanel" id={`${id}-panel`} aria-labelledby={`${id}-${value}`}>
        {children}
      </div>
    </div>
  )
}
