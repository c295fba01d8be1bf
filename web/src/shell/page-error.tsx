import { Button } from '../ui/button.tsx'
import { Notice } from '../ui/panel.tsx'

/** In place of a page that could not be loaded or drawn. */
export function PageError({ error }: { error: unknown }) {
  return (
    <div className="mx-auto max-w-lg p-6">
      <Notice tone="error" role="alert">
        <p className="font-medium">This page could not be shown.</p>
        <p className="mt-1">
          The service cannot be reached, it was updated while this page was open, or the page has a fault.
        </p>
        <p className="num mt-1 text-sm wrap-anywhere text-muted">
          {error instanceof Error ? error.message : String(error)}
        </p>
        <Button small className="mt-2" onClick={() => window.location.reload()}>
          Reload the page
        </Button>
      </Notice>
    </div>
  )
}
