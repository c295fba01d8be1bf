import { type KeyboardEvent, type ReactNode, useId } from 'react'
import { Button } from './button.tsx'
import { Dialog } from './dialog.tsx'
import { Form } from './form.tsx'
import { ErrorPanel } from './loaded.tsx'

export type FormDialogProps = {
  title: string
  children: ReactNode
  /** The words of the button that makes the change. */
  action: string
  change: { readonly mutate: () => void; readonly isPending: boolean; readonly error: Error | null }
  /** In place of `change.mutate`, when the fields are checked first. */
  onSubmit?: () => void
  onClose: () => void
  /** `danger` for what cannot be undone. */
  variant?: 'danger' | 'primary'
  wide?: boolean
  disabled?: boolean
  /** A button at the other end of the footer. */
  otherAction?: ReactNode
  /** What to do when the answer was lost, so that the change may have been made. */
  ifMade?: string | undefined
}

/**
 * Makes a change: a form, or a question before a change that has consequences. It cannot be closed while the change runs;
 * the change closes it when it is made.
 */
export function FormDialog({
  title,
  children,
  action,
  change,
  onSubmit = change.mutate,
  onClose,
  variant = 'primary',
  wide = false,
  disabled = false,
  otherAction,
  ifMade,
}: FormDialogProps) {
  const formId = useId()
  // Browsers differ: some submit the form. The first field may be a select, and the change may end a secret.
  const ignoreEnterInSelect = (event: KeyboardEvent) => {
    if (event.key === 'Enter' && event.target instanceof HTMLSelectElement) event.preventDefault()
  }
  return (
    <Dialog
      title={title}
      onClose={onClose}
      wide={wide}
      busy={change.isPending}
      footer={
        <>
          {otherAction && (
            <fieldset className="mr-auto" disabled={change.isPending}>
              {otherAction}
            </fieldset>
          )}
          <Button onClick={onClose} disabled={change.isPending}>
            Cancel
          </Button>
          <Button type="submit" form={formId} variant={variant} disabled={disabled} busy={change.isPending}>
            {action}
          </Button>
        </>
      }
    >
      <Form
        id={formId}
        onSubmit={onSubmit}
        onKeyDown={ignoreEnterInSelect}
        className="flex flex-col gap-4 wrap-anywhere"
      >
        {typeof children === 'string' ? <p>{children}</p> : children}
        {change.error !== null && <ErrorPanel error={change.error} ifMade={ifMade} />}
      </Form>
    </Dialog>
  )
}
