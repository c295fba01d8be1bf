import { useQuery } from '@tanstack/react-query'
import { Outlet } from '@tanstack/react-router'
import { Suspense, useCallback, useEffect, useState } from 'react'
import { isShown, showAccount, shownAccount } from '../api/call.ts'
import { sessionQuery } from '../api/queries.ts'
import type { Session } from '../api/shapes.ts'
import { Button } from '../ui/button.tsx'
import { lazyDialog } from '../ui/lazy-dialog.tsx'
import { ErrorPanel } from '../ui/loaded.tsx'
import { BottomBar } from './bottom-bar.tsx'
import { LiveUpdates } from './live.tsx'
import { SkipLink } from './page.tsx'
import { useAskSignIn, useIsSignedOut } from './providers.tsx'
import { Rail } from './rail.tsx'
import { SandboxBar } from './sandbox-bar.tsx'
import { ShortcutsDialog, useShortcuts } from './shortcuts.tsx'
import { SignedOut } from './signed-out.tsx'
import { TopBar } from './top-bar.tsx'

const Palette = lazyDialog(() => import('./palette.tsx').then((module) => module.Palette))

/** Everything behind a sign-in. */
export function AppShell() {
  const session = useQuery(sessionQuery)
  useEffect(() => {
    if (session.data?.signed_in !== true) return
    // Another window has switched accounts or signed in another person. Reload, so that data of two accounts is never shown together.
    if (shownAccount() !== undefined && !isShown(session.data)) return window.location.assign('/')
    showAccount(session.data)
  }, [session.data])

  if (session.data === undefined && session.error !== null) {
    return (
      <main className="mx-auto max-w-lg p-6">
        <h1 className="mb-4 text-2xl">Penny Router</h1>
        <ErrorPanel error={session.error} onRetry={() => void session.refetch()} busy={session.isFetching} />
      </main>
    )
  }
  if (session.data === undefined) return <div aria-busy="true" />
  if (!session.data.signed_in) return <SignedOut />
  return <SignedIn session={session.data} />
}

function SignedIn({ session }: { session: Session }) {
  const [open, setOpen] = useState<'palette' | 'help'>()
  const onPalette = useCallback(() => setOpen('palette'), [])
  const onHelp = useCallback(() => setOpen('help'), [])
  const close = useCallback(() => setOpen(undefined), [])
  useShortcuts({ onPalette, onHelp })
  return (
    <LiveUpdates>
      <SkipLink />
      <div className="flex min-h-dvh">
        <Rail session={session} />
        <div className="flex min-w-0 flex-1 flex-col">
          <SandboxBar session={session} />
          <TopBar onPalette={onPalette} />
          <SessionEndedBar />
          <main id="content" tabIndex={-1} className="flex-1 outline-none">
            <div className="mx-auto max-w-[1200px] px-4 pt-6 pb-24 md:px-6 md:pb-12">
              <Outlet />
            </div>
          </main>
        </div>
        <BottomBar session={session} />
      </div>
      {open === 'help' && <ShortcutsDialog onClose={close} />}
      {open === 'palette' && (
        <Suspense>
          <Palette onClose={close} />
        </Suspense>
      )}
    </LiveUpdates>
  )
}

/** Stays after the sign-in over the page was closed: what the page shows is from before. */
function SessionEndedBar() {
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
