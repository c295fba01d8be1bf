import { type ComponentType, lazy } from 'react'
import { Button } from './button.tsx'
import { Dialog } from './dialog.tsx'

type Closable = { readonly onClose: () => void }

/** A dialog that is loaded when it is first opened. If loading fails, another dialog reports it, and the page keeps its form input. */
export function lazyDialog<Props extends Closable>(load: () => Promise<ComponentType<Props>>) {
  return lazy(async () => ({ default: await load().catch((): ComponentType<Props> => NotLoaded) }))
}

function NotLoaded({ onClose }: Closable) {
  return (
    <Dialog
      title="This part could not be loaded"
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Close</Button>
          <Button variant="primary" onClick={() => window.location.reload()}>
            Reload the page
          </Button>
        </>
      }
    >
      <p>
        The service cannot be reached, or it was updated while this page was open. Copy what you have typed before you
        reload the page.
      </p>
    </Dialog>
  )
}
