import { type KeyboardEvent, type ReactNode, useEffect, useId, useRef, useState } from 'react'
import { classNames } from './class-names.ts'

type PopoverProps = {
  label: string
  button: ReactNode
  buttonClassName: string
  children: (close: () => void) => ReactNode
  align?: 'left' | 'right'
  above?: boolean
}

/** A button that opens a small sheet next to it. Escape or a click elsewhere closes it and restores the focus. */
export function Popover({ label, button, buttonClassName, children, align = 'left', above = false }: PopoverProps) {
  const [open, setOpen] = useState(false)
  const id = useId()
  const root = useRef<HTMLDivElement>(null)
  const trigger = useRef<HTMLButtonElement>(null)
  const close = () => {
    setOpen(false)
    trigger.current?.focus()
  }
  useEffect(() => {
    if (!open) return
    const outside = (event: PointerEvent) => {
      if (!root.current?.contains(event.target as Node)) setOpen(false)
    }
    document.addEventListener('pointerdown', outside)
    return () => document.removeEventListener('pointerdown', outside)
  }, [open])
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== 'Escape' || !open) return
    event.stopPropagation()
    close()
  }
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: it handles Escape for everything inside it.
    <div ref={root} className="relative" onKeyDown={onKeyDown}>
      <button
        ref={trigger}
        type="button"
        aria-expanded={open}
        aria-controls={open ? id : undefined}
        aria-haspopup="dialog"
        aria-label={label}
        className={buttonClassName}
        onClick={() => setOpen(!open)}
      >
        {button}
      </button>
      {open && (
        <div
          id={id}
          role="dialog"
          aria-label={label}
          className={classNames(
            'fade-in absolute z-40 min-w-56 rounded-md border border-edge bg-surface p-1.5',
            align === 'right' ? 'right-0' : 'left-0',
            above ? 'bottom-full mb-1' : 'top-full mt-1',
          )}
        >
          {children(close)}
        </div>
      )}
    </div>
  )
}

export const menuItemClass =
  'flex h-8 w-full items-center gap-2 rounded-sm px-2 text-left hover:bg-sunken disabled:opacity-50'
