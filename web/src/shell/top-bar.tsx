import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { balanceQuery, overviewQuery } from '../api/queries.ts'
import { atomic, formatAmount, formatExact } from '../money/format.ts'
import { Icon } from '../ui/icon.tsx'
import { Popover } from '../ui/menu.tsx'
import { useLiveStatus } from './live.tsx'
import { useIsSignedOut } from './providers.tsx'
import { Wordmark } from './rail.tsx'

export function TopBar({ onPalette }: { onPalette: () => void }) {
  return (
    <header className="sticky top-0 z-20 flex h-14 items-center gap-3 border-b border-rule bg-paper px-4 md:px-6 print:hidden">
      {/* The narrowest screens show only the logo, to leave room for the balance (available and held). */}
      <Link
        to="/"
        className="flex items-center gap-2 whitespace-nowrap md:hidden max-sm:[&>span]:hidden"
        aria-label="Penny Router, overview"
      >
        <Wordmark />
      </Link>
      <button
        type="button"
        onClick={onPalette}
        className="hidden h-8 w-80 items-center gap-2 rounded-md border border-rule bg-surface px-2.5 text-muted hover:border-edge md:flex"
      >
        <Icon name="search" />
        <span className="flex-1 text-left whitespace-nowrap">Search or run a command</span>
        <kbd className="num text-xs whitespace-nowrap">{isMac() ? '⌘K' : 'Ctrl K'}</kbd>
      </button>
      <div className="flex-1" />
      <button
        type="button"
        onClick={onPalette}
        aria-label="Search or run a command"
        className="inline-flex size-8 items-center justify-center rounded-md text-muted hover:bg-sunken md:hidden"
      >
        <Icon name="search" />
      </button>
      <Alerts />
      <BalancePill />
    </header>
  )
}

export function isMac(): boolean {
  return /Mac|iPhone|iPad/.test(navigator.platform)
}

function BalancePill() {
  const { data, error } = useQuery(balanceQuery)
  const status = useLiveStatus()
  const isSignedOut = useIsSignedOut()
  if (data === undefined && error !== null)
    return (
      <Link to="/funds" className="text-held">
        Balance not loaded
      </Link>
    )
  if (data === undefined) return <div className="skeleton h-8 w-36" aria-hidden="true" />
  const [available, held] = [atomic(data.available_atomic), atomic(data.held_atomic)]
  return (
    <Link
      to="/funds"
      data-testid="balance-pill"
      data-available={data.available_atomic}
      data-held={data.held_atomic}
      title={`Available ${formatExact(available)} · held ${formatExact(held)}`}
      className="flex min-h-8 items-center gap-x-2 rounded-md border border-rule bg-surface px-2.5 whitespace-nowrap hover:border-edge max-sm:flex-col max-sm:items-end max-sm:justify-center"
    >
      {status === 'lost' && !isSignedOut && <span className="text-held max-sm:text-xs">Reconnecting…</span>}
      <span className="flex items-center gap-2">
        <span className="num font-medium">{formatAmount(available)}</span>
        <span className="sr-only">available,</span>
        <span className="flex items-center gap-1 text-muted">
          <span aria-hidden="true">·</span>
          <span className="num">{formatAmount(held)}</span> held
        </span>
      </span>
    </Link>
  )
}

function Alerts() {
  const { data, error } = useQuery(overviewQuery('24h'))
  const alerts = data?.alerts ?? []
  // While nothing was read, it is unknown whether there are any.
  const none = data !== undefined ? 'No alerts.' : error === null ? 'Loading…' : 'The alerts could not be loaded.'
  return (
    <Popover
      label={alerts.length > 0 ? `Alerts: ${alerts.length}` : data === undefined ? 'Alerts' : 'Alerts: none'}
      align="right"
      buttonClassName="relative inline-flex size-8 items-center justify-center rounded-md text-muted hover:bg-sunken hover:text-ink"
      button={
        <>
          <Icon name="bell" />
          {alerts.length > 0 && <span className="absolute top-1 right-1 size-2 rounded-full bg-held" />}
        </>
      }
    >
      {(close) => (
        <div className="max-h-[70dvh] w-72 overflow-y-auto p-2">
          {alerts.length === 0 && <p className="text-muted">{none}</p>}
          <ul className="flex flex-col gap-2">
            {alerts.map((alert) => (
              <li key={`${alert.code} ${alert.href}`}>
                <a href={alert.href} onClick={close} className="block hover:underline">
                  {alert.message}
                </a>
              </li>
            ))}
          </ul>
        </div>
      )}
    </Popover>
  )
}
