import { type ReactNode, useState } from 'react'
import { Button } from './button.tsx'
import { CopyButton } from './copy.tsx'
import { Dialog } from './dialog.tsx'
import { Notice } from './panel.tsx'

export type ShownOnceProps = {
  readonly title: string
  /** What the value is for. */
  readonly lead: ReactNode
  readonly value: string
  readonly copyLabel?: string
  /** How to get another one, said to those who close the dialog and have not copied the value. */
  readonly whenLost: string
  /** Another way to keep the value; calls `onKept`. */
  readonly otherWay?: (onKept: () => void) => ReactNode
  readonly wide?: boolean
  readonly testId?: string
  /** How to use the value. */
  readonly children?: ReactNode
  readonly onClose: () => void
}

/** Shows a secret or link that the service does not show again. Closing it asks once, if the value was not copied. */
export function ShownOnceDialog({
  title,
  lead,
  value,
  copyLabel,
  whenLost,
  otherWay,
  wide = false,
  testId = 'secret',
  children,
  onClose,
}: ShownOnceProps) {
  const [kept, setKept] = useState(false)
  const [asked, setAsked] = useState(false)
  const isAsking = asked && !kept
  const keep = () => setKept(true)
  const close = () => {
    if (kept || asked) onClose()
    else setAsked(true)
  }
  return (
    <Dialog
      wide={wide}
      title={title}
      onClose={close}
      footer={
        <Button variant={kept ? 'primary' : 'secondary'} onClick={close}>
          {isAsking ? 'Close without copying' : 'Done'}
        </Button>
      }
    >
      <div className="flex flex-col gap-4" data-testid="secret-once">
        <p>{lead}</p>
        <output className="num block rounded-md border border-edge bg-sunken p-3 break-all" data-testid={testId}>
          {value}
        </output>
        <div className="flex flex-wrap gap-2" data-first>
          <CopyButton text={value} variant="primary" onCopied={keep}>
            {copyLabel}
          </CopyButton>
          {otherWay?.(keep)}
        </div>
        {isAsking && (
          <Notice tone="held" role="alert">
            You have not copied it. It cannot be shown again after you close this window. {whenLost}
          </Notice>
        )}
        {children}
      </div>
    </Dialog>
  )
}
