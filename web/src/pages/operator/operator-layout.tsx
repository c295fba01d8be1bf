import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { Page } from '../../shell/page.tsx'

const sections = [
  ['/operator', 'Health'],
  ['/operator/accounts', 'Accounts'],
  ['/operator/revenue', 'Revenue'],
] as const

type OperatorLayoutProps = { title: string; lead: string; actions?: ReactNode; children: ReactNode }

/** A page of the operator: its title, and the way to the other ones. Nothing here moves money. */
export function OperatorLayout({ title, lead, actions, children }: OperatorLayoutProps) {
  return (
    <Page title={title} lead={lead} actions={actions}>
      <nav aria-label="Operator" className="-mt-2 flex gap-4 overflow-x-auto border-b border-rule">
        {sections.map(([to, label]) => (
          <Link
            key={to}
            to={to}
            activeOptions={{ exact: true, includeSearch: false }}
            className="-mb-px border-b-2 border-transparent py-2 whitespace-nowrap text-muted outline-offset-[-2px] hover:text-ink"
            activeProps={{ className: 'border-ink! font-medium text-ink!' }}
          >
            {label}
          </Link>
        ))}
      </nav>
      {children}
    </Page>
  )
}
