import { Link, useLocation } from '@tanstack/react-router'
import { type ReactNode, useEffect } from 'react'
import { Icon } from '../ui/icon.tsx'

type PageProps = { title: string; lead?: ReactNode; actions?: ReactNode; children: ReactNode }

/** One page: its title in the tab, its one `h1`, and what can be done on it. */
export function Page({ title, lead, actions, children }: PageProps) {
  usePageTitle(title)
  return (
    <div className="flex flex-col gap-6">
      <header className="flex flex-wrap items-end justify-between gap-x-6 gap-y-3">
        <div className="min-w-0">
          <h1 className="text-2xl tracking-tight wrap-anywhere">{title}</h1>
          {lead !== undefined && <p className="mt-0.5 text-muted">{lead}</p>}
        </div>
        {actions !== undefined && <div className="flex flex-wrap items-center gap-2 print:hidden">{actions}</div>}
      </header>
      {children}
    </div>
  )
}

export function usePageTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · Penny Router`
  }, [title])
}

/** The way back to the list, in place of a lead; `search` keeps its filters. */
export function BackLink({ to, search, label }: { to: string; search?: true; label: string }) {
  return (
    <Link to={to} {...(search && { search })} className="inline-flex items-center gap-1 text-link print:hidden">
      <Icon name="left" size={14} /> {label}
    </Link>
  )
}

/** Follows a link to one part of a page: the part is there only once its data is. */
export function useScrollToHash(ready: boolean): void {
  const { hash } = useLocation()
  useEffect(() => {
    if (ready && hash !== '') document.getElementById(hash)?.scrollIntoView()
  }, [ready, hash])
}

export function SkipLink() {
  return (
    <a
      href="#content"
      className="sr-only z-50 rounded-md bg-ink px-3 py-2 text-paper focus:not-sr-only focus:fixed focus:top-2 focus:left-2"
    >
      Skip to content
    </a>
  )
}
