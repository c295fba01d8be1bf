import { type ReactNode, useId, useLayoutEffect, useRef } from 'react'
import { IconButton } from './button.tsx'
import { classNames } from './class-names.ts'

type DialogProps = {
  title: string
  onClose: () => void
  children: ReactNode
  wide?: boolean
  busy?: boolean
  footer?: ReactNode
  testId?: string
}

/**
 * A modal on the browser's own `<dialog>`: it traps focus, closes on Escape, gives focus back. `onClose` is called for
 * every attempt to close it; the caller may keep it open. While `busy`, it cannot be closed: the request moves money or returns a
 * secret, and the user must see the outcome.
 */
export function Dialog({ title, onClose, children, wide = false, busy = false, footer, testId }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null)
  const titleId = useId()
  // A layout effect: it must be closed while it is still in the page, or the browser does not restore the focus.
  useLayoutEffect(() => {
    const element = dialog.current!
    if (!element.open) element.showModal()
    // The first field of a form, or what the dialog names as safe; the browser would focus Close.
    const first = [
      '[data-first] button',
      '[data-body] :is(input, select, textarea)',
      'footer > button:not([type=submit])',
    ]
    first
      .map((one) => element.querySelector<HTMLElement>(one))
      .find((found) => found !== null)
      ?.focus()
    return () => element.close()
  }, [])
  const leave = () => {
    if (!busy) onClose()
  }
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: `<dialog>` handles Escape itself.
    <dialog
      ref={dialog}
      aria-labelledby={titleId}
      data-testid={testId}
      onCancel={(event) => {
        event.preventDefault()
        leave()
      }}
      onClose={() => {
        // Chromium closes it on a second Escape without a cancel event.
        if (dialog.current === null || dialog.current.open) return
        dialog.current.showModal()
        leave()
      }}
      onClick={(event) => {
        if (event.target === dialog.current) leave()
      }}
      className={classNames(
        // A dialog inherits the style of its parent's text, such as a cell that is aligned to the right.
        'text-left whitespace-normal fade-in m-auto max-h-[calc(100dvh-32px)] w-[calc(100vw-32px)] overflow-hidden rounded-md border border-rule bg-surface p-0',
        wide ? 'max-w-2xl' : 'max-w-md',
      )}
    >
      <div className="flex max-h-[calc(100dvh-34px)] flex-col">
        <header className="flex items-center justify-between gap-4 border-b border-rule px-6 py-3">
          <h2 id={titleId} className="min-w-0 text-lg wrap-anywhere">
            {title}
          </h2>
          <IconButton icon="cross" label="Close" onClick={leave} disabled={busy} className="-mr-2" />
        </header>
        <div data-body className="overflow-y-auto px-6 py-4">
          {children}
        </div>
        {footer !== undefined && (
          <footer className="flex flex-wrap justify-end gap-2 border-t border-rule px-6 py-3">{footer}</footer>
        )}
      </div>
    </dialog>
  )
}
