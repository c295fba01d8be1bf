import type { ReactNode } from 'react'
import { Button } from '../../ui/button.tsx'
import { CopyButton } from '../../ui/copy.tsx'
import { Dialog } from '../../ui/dialog.tsx'

type Props = {
  readonly title: string
  /** Purpose of the value. */
  readonly children: ReactNode
  readonly value: string
  readonly testId?: string
  readonly onClose: () => void
}

/** Shows a secret or link that the service does not show again. */
export function ShownOnceDialog({ title, children, value, testId, onClose }: Props) {
  return (
    <Dialog title={title} onClose={onClose} footer={<Button onClick={onClose}>Done</Button>}>
      <p className="mb-3">{children}</p>
      <output data-testid={testId} className="num mb-3 block rounded-md border border-edge bg-sunken p-3 break-all">
        {value}
      </output>
      <CopyButton text={value} />
    </Dialog>
  )
}
