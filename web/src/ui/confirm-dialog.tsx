import type { ReactNode } from 'react'
import { Button } from './button.tsx'
import { Dialog } from './dialog.tsx'
import { ErrorPanel } from './loaded.tsx'

/** Asks before a change. The children say what will happen; the change closes the dialog when it is made. */
export function ConfirmDialog({
  title,
  children,
  action,
  change,
  onClose,
  variant = 'danger',
  wide = false,
  disabled = false,
  ifMade,
}: {
  title: string
  children: ReactNode
  /** The words of the button that makes the change. */
  action: string
  change: { readonly mutate: () => void; readonly isPending: boolean; readonly error: Error | null }
  onClose: () => void
  /** `danger` for what cannot be undone. */
  variant?: 'danger' | 'primary'
  wide?: boolean
  disabled?: boolean
  /** What to do when the answer was lost, so that the change may have been made. */
  ifMade?: string
}) {
  return (
    <Dialog
      title={title}
      onClose={onClose}
      wide={wide}
      busy={change.isPending}
      footer={
        <>
          <Button onClick={onClose} disabled={change.isPending}>
            Cancel
          </Button>
          <Button variant={variant} disabled={disabled} onClick={() => change.mutate()} busy={change.isPending}>
            {action}
          </Button>
        </>
      }
    >
      <div className="flex flex-col gap-4 wrap-anywhere">
        {typeof children === 'string' ? <p>{children}</p> : children}
        {change.error !== null && <ErrorPanel error={change.error} {...(ifMade !== undefined && { ifMade })} />}
      </div>
    </Dialog>
  )
}
