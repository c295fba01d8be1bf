import { Link, Outlet } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { SkipLink } from './page.tsx'
import { Wordmark } from './rail.tsx'
import { ThemeButton } from './theme-button.tsx'

/** Pages that need no session: sign-in, receipts, status. */
export function PublicShell() {
  return (
    <PublicFrame>
      <Outlet />
    </PublicFrame>
  )
}

const headerLink = 'rounded-md px-2 py-1 text-muted hover:text-ink'

export function PublicFrame({ children }: { children: ReactNode }) {
  return (
    <>
      <SkipLink />
      <div className="flex min-h-dvh flex-col">
        <header className="flex h-14 items-center justify-between border-b border-rule px-4 md:px-6">
          <Link to="/" className="flex items-center gap-2.5">
            <Wordmark />
          </Link>
          <nav aria-label="Pages" className="flex items-center gap-1">
            <a href="/docs" className={headerLink}>
              Docs
            </a>
            <Link to="/models" className={headerLink}>
              Models
            </Link>
            <Link to="/status" className={`${headerLink} max-sm:hidden`}>
              Status
            </Link>
            <ThemeButton />
          </nav>
        </header>
        <main id="content" tabIndex={-1} className="flex flex-1 flex-col px-4 py-8 outline-none md:px-6">
          {children}
        </main>
      </div>
    </>
  )
}
