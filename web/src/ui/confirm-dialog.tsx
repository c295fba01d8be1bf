import type { ReactNode } from 'react'
import { Button } from './button.tsx'
import { Dialog } from './dialog.tsx'
import { ErrorPanel } from './loaded.tsx'

/** Asks before a change that cannot be undone. The children say what will happen; the change closes the dialog when it is made. */
export function ConfirmDialog({
  title,
  children,
  action,
  change,
  onClose,
}: {
  title: string
  children: ReactNode
  /** The words of the button that makes the change. */
  action: string
  change: { readonly mutate: (input: undefined) => void; readonly isPending: boolean; readonly error: Error | null }
  onClose: () => void
}) {
  return (
    <Dialog
      title={title}
      onClose={onClose}
      busy={change.isPending}
      footer={
        <>
          <Button onClick={onClose} disabled={change.isPending}>
            Cancel
          </Button>
          <Button variant="danger" onClick={() => change.mutate(undefined)} busy={change.isPending}>
            {action}
          </Button>
        </>
      }
    >
      <div className="flex flex-col gap-4 wrap-anywhere">
        <p>{children}</p>
        {change.error !== null && <ErrorPanel error={change.error} />}
      </div>
    </Dialog>
  )
}
