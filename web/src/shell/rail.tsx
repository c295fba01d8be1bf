import { Link } from '@tanstack/react-router'
import type { Session } from '../api/shapes.ts'
import { classNames } from '../ui/class-names.ts'
import { Icon } from '../ui/icon.tsx'
import { AccountMenu } from './account-menu.tsx'
import { operatorPlace, places } from './navigation.ts'
import { ThemeButton } from './theme-button.tsx'

export function Rail({ session }: { session: Session }) {
  return (
    <aside
      aria-label="Sidebar"
      className="sticky top-0 hidden h-dvh w-[220px] shrink-0 flex-col border-r border-rule bg-paper md:flex print:hidden"
    >
      <Link to="/" className="flex h-14 items-center gap-2.5 px-5">
        <Wordmark />
      </Link>
      <nav aria-label="Pages" className="flex flex-1 flex-col gap-0.5 overflow-y-auto px-3 py-2">
        {[...places, ...(session.operator ? [operatorPlace] : [])].map(({ to, label, icon }) => (
          <Link
            key={to}
            to={to}
            activeOptions={{ exact: to === '/', includeSearch: false }}
            className="flex h-8 items-center gap-2.5 rounded-md px-2 text-muted hover:bg-sunken hover:text-ink"
            activeProps={{ className: 'bg-sunken font-medium text-ink!' }}
          >
            <Icon name={icon} />
            {label}
          </Link>
        ))}
      </nav>
      <div className="flex flex-col gap-2 border-t border-rule px-3 py-3">
        <div className="flex items-center justify-between px-2">
          <EnvironmentBadge environment={session.environment} />
          <span className="flex items-center">
            <a href="/docs" className="rounded-md px-2 py-1 text-muted hover:text-ink">
              Docs
            </a>
            <ThemeButton />
          </span>
        </div>
        <AccountMenu session={session} />
      </div>
    </aside>
  )
}

export function Wordmark() {
  return (
    <>
      <svg viewBox="0 0 32 32" width="20" height="20" aria-hidden="true">
        <rect width="32" height="32" rx="6" fill="var(--color-accent)" />
        <path
          d="M11 25V8h6.2a5.3 5.3 0 0 1 0 10.6H11"
          fill="none"
          stroke="var(--color-on-accent)"
          strokeWidth="2.6"
          strokeLinecap="square"
        />
      </svg>
      <span className="text-lg font-medium tracking-tight">Penny Router</span>
    </>
  )
}

const environments = {
  sandbox: ['Sandbox', 'border-held text-held'],
  testnet: ['Testnet', 'border-link text-link'],
  live: ['Live', 'border-accent text-accent'],
} as const

export function EnvironmentBadge({ environment }: { environment: Session['environment'] }) {
  const [word, colour] = environments[environment]
  return <span className={classNames('rounded-sm border px-1.5 py-px text-xs font-medium', colour)}>{word}</span>
}
