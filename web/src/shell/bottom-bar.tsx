import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import type { Session } from '../api/shapes.ts'
import { Dialog } from '../ui/dialog.tsx'
import { Icon } from '../ui/icon.tsx'
import { ErrorPanel } from '../ui/loaded.tsx'
import { OtherAccounts, useSignOut } from './account-menu.tsx'
import { narrowPlaces, operatorPlace, places } from './navigation.ts'
import { EnvironmentBadge } from './rail.tsx'
import { ThemeButton } from './theme-button.tsx'

const shown = places.filter(({ to }) => (narrowPlaces as readonly string[]).includes(to))
const hidden = places.filter(({ to }) => !(narrowPlaces as readonly string[]).includes(to))
const item = 'flex flex-1 flex-col items-center justify-center gap-0.5 text-xs text-muted outline-offset-[-2px]'

export function BottomBar({ session }: { session: Session }) {
  const [open, setOpen] = useState(false)
  const signOut = useSignOut()
  return (
    <>
      <nav
        aria-label="Pages"
        className="fixed inset-x-0 bottom-0 z-30 flex h-14 border-t border-rule bg-paper pb-[env(safe-area-inset-bottom)] md:hidden print:hidden"
      >
        {shown.map(({ to, label, icon }) => (
          <Link
            key={to}
            to={to}
            className={item}
            activeOptions={{ exact: to === '/', includeSearch: false }}
            activeProps={{ className: 'text-ink! font-medium' }}
          >
            <Icon name={icon} size={18} />
            {label}
          </Link>
        ))}
        <button type="button" className={item} onClick={() => setOpen(true)} aria-haspopup="dialog">
          <Icon name="dots" size={18} />
          More
        </button>
      </nav>
      {open && (
        <Dialog title="More" onClose={() => setOpen(false)}>
          <ul className="flex flex-col">
            {[...hidden, ...(session.operator ? [operatorPlace] : [])].map(({ to, label, icon }) => (
              <li key={to}>
                <Link to={to} className="flex h-11 items-center gap-3" onClick={() => setOpen(false)}>
                  <Icon name={icon} />
                  {label}
                </Link>
              </li>
            ))}
            <li>
              <a href="/docs" className="flex h-11 items-center gap-3">
                <Icon name="docs" />
                Docs
              </a>
            </li>
          </ul>
          <OtherAccounts session={session} />
          <div className="mt-2 flex items-center justify-between border-t border-rule pt-3">
            <EnvironmentBadge environment={session.environment} />
            <span className="flex items-center gap-2">
              <ThemeButton />
              <button
                type="button"
                className="h-8 px-2 text-muted"
                onClick={() => signOut.mutate()}
                disabled={signOut.isPending}
              >
                Sign out
              </button>
            </span>
          </div>
          {signOut.error !== null && <ErrorPanel error={signOut.error} />}
        </Dialog>
      )}
    </>
  )
}
