import { type ReactNode, useState } from 'react'
import { Button, type ButtonProps } from '../ui/button.tsx'
import { TextField } from '../ui/field.tsx'
import { FormDialog, type FormDialogProps } from '../ui/form-dialog.tsx'
import { isSameName } from '../ui/same-name.ts'
import { useChange } from './use-change.ts'

/** A button that opens a dialog. `dialog` gets the function that closes it. */
export function DialogButton({ dialog, ...button }: ButtonProps & { dialog: (close: () => void) => ReactNode }) {
  const [open, setOpen] = useState(false)
  return (
    <>
      <Button {...button} onClick={() => setOpen(true)} />
      {open && dialog(() => setOpen(false))}
    </>
  )
}

type Props<Made> = Omit<FormDialogProps, 'change' | 'onSubmit'> & {
  make: () => Promise<Made>
  /** What is announced when the change was made; without it, another dialog says it. */
  said?: string | ((made: Made) => string)
  /** Checks the fields before the change is made. */
  submit?: (send: () => void) => void
  onMade?: (made: Made) => void
  /** The page takes the dialog away itself, in place of `onClose`. */
  staysOpen?: boolean
  /** What the change cannot be undone for: its name must be typed. */
  typed?: { readonly label: string; readonly name: string }
}

/** Asks before a change, or for what it needs; makes it, and closes. */
export function ChangeDialog<Made>(props: Props<Made>) {
  const { make, said, submit, onMade, staysOpen = false, typed, children, ...dialog } = props
  const [text, setText] = useState('')
  const change = useChange(async () => {
    const made = await make()
    if (!staysOpen) dialog.onClose()
    onMade?.(made)
    return made
  }, said)
  return (
    <FormDialog
      {...dialog}
      change={change}
      {...(submit !== undefined && { onSubmit: () => submit(change.mutate) })}
      disabled={dialog.disabled === true || (typed !== undefined && !isSameName(text, typed.name))}
    >
      {typeof children === 'string' ? <p>{children}</p> : children}
      {typed !== undefined && <TextField label={`${typed.label}, ${typed.name}`} value={text} onChange={setText} />}
    </FormDialog>
  )
}

type ConfirmProps<Made> = Omit<Props<Made>, 'onClose' | 'variant'> & {
  label: ReactNode
  /** What the change is made to, for screen readers. */
  name?: string
  className?: string
}

/** A small button for a change that cannot be undone, or ends a secret: it asks first. */
export function ConfirmButton<Made>({ label, name, className, ...dialog }: ConfirmProps<Made>) {
  return (
    <DialogButton
      small
      variant="quiet"
      className={className}
      dialog={(close) => <ChangeDialog {...dialog} variant="danger" onClose={close} />}
    >
      {label}
      {name !== undefined && <span className="sr-only"> {name}</span>}
    </DialogButton>
  )
}

/** Loads another page: nothing of this one may stay. The change that led there stays pending until the browser has left. */
export function leaveFor(path: string): Promise<never> {
  window.location.assign(path)
  return new Promise(() => {})
}
