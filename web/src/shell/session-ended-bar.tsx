import { Button } from '../ui/button.tsx'
import { useAskSignIn, useIsSignedOut } from './providers.tsx'

/** Stays after the sign-in over the page was closed: what the page shows is from before. */
export function SessionEndedBar() {
  const isSignedOut = useIsSignedOut()
  const askSignIn = useAskSignIn()
  if (!isSignedOut) return null
  return (
    <div
      data-testid="session-ended"
      className="sticky top-14 z-10 flex items-center justify-between gap-x-3 border-b border-rule bg-held-wash px-4 py-1 md:px-6 print:hidden"
    >
      <p role="status" className="text-sm text-held">
        You are signed out. This page is no longer updated.
      </p>
      <Button small onClick={() => askSignIn({ reason: 'expired' })}>
        Sign in
      </Button>
    </div>
  )
}
