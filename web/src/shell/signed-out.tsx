import { useLocation } from '@tanstack/react-router'
import { lazy, Suspense } from 'react'
import { PublicFrame } from './public-shell.tsx'

const FrontPage = lazy(() => import('../pages/front/front-page.tsx').then((module) => ({ default: module.FrontPage })))
const ModelsPage = lazy(() =>
  import('../pages/models/models-page.tsx').then((module) => ({ default: module.ModelsPage })),
)
const SignIn = lazy(() => import('../pages/sign-in/sign-in.tsx').then((module) => ({ default: module.SignIn })))

/**
 * What a visitor without a session sees at an address of the dashboard: the front page at `/`, the models at `/models`, which
 * are public, and the sign-in form elsewhere.
 * The form replaces the page and the address stays, so signing in shows exactly the page that the link named. A redirect
 * to /login and back is not used: it once navigated on every render and froze the tab.
 */
export function SignedOut() {
  const pathname = useLocation({ select: (location) => location.pathname.replace(/(.)\/$/, '$1') })
  return (
    <PublicFrame>
      <Suspense fallback={<div aria-busy="true" />}>
        {pathname === '/' ? (
          <FrontPage />
        ) : pathname === '/models' ? (
          <div className="mx-auto w-full max-w-[1040px] pb-16">
            <ModelsPage />
          </div>
        ) : (
          <SignIn lead="Sign in to open this page." />
        )}
      </Suspense>
    </PublicFrame>
  )
}
