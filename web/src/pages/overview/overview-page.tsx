import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { useState } from 'react'
import { overviewQuery, readinessQuery, sessionQuery, statusQuery } from '../../api/queries.ts'
import { useX402Wallet } from '../../api/session.ts'
import type { Overview } from '../../api/shapes.ts'
import { atomic, formatAmount } from '../../money/format.ts'
import { Page } from '../../shell/page.tsx'
import { usePreference } from '../../shell/preferences.ts'
import { Segmented } from '../../ui/field.tsx'
import { Loaded } from '../../ui/loaded.tsx'
import { Panel } from '../../ui/panel.tsx'
import { StateMark, standings } from '../../ui/state-mark.tsx'
import { RecentRequests } from '../requests/request-list.tsx'
import { Checklist } from './checklist.tsx'
import { SpendChart } from './spend-chart.tsx'
import { Tiles } from './tiles.tsx'

type Range = Overview['range']
const ranges = [
  ['24h', '24 h'],
  ['7d', '7 d'],
  ['30d', '30 d'],
] as const

export function OverviewPage() {
  const navigate = useNavigate()
  const search = useSearch({ strict: false }) as { range?: string }
  const range = ranges.find(([value]) => value === search.range)?.[0] ?? '24h'
  const overview = useQuery(overviewQuery(range))
  const setRange = (next: Range) => void navigate({ to: '/', search: { range: next } as never, replace: true })
  return (
    <Page title="Overview" actions={<Segmented label="Range" value={range} options={ranges} onChange={setRange} />}>
      <Loaded query={overview} skeleton={<OverviewSkeleton />}>
        {(data) => <OverviewBody overview={data} range={range} />}
      </Loaded>
    </Page>
  )
}

function OverviewBody({ overview, range }: { overview: Overview; range: Range }) {
  const { data: session } = useQuery(sessionQuery)
  // Each account has its own first steps, also after the sandbox began again.
  const [dismissed, setDismissed] = usePreference(`checklist.${session?.account?.id}`, 'open')
  const done = Object.values(overview.checklist).every(Boolean)
  // Shown as done when the last step is done in this visit; hidden on later visits.
  const [wasDone] = useState(done)
  return (
    <div className="flex flex-col gap-6">
      {session !== undefined && dismissed === 'open' && !wasDone && (
        <Checklist session={session} overview={overview} done={done} onDismiss={() => setDismissed('dismissed')} />
      )}
      <Tiles overview={overview} range={range} />
      <Burn overview={overview} />
      {overview.checklist.request_sent && <SpendChart range={range} />}
      <div className="grid items-start gap-6 lg:grid-cols-[1fr_288px]">
        <RecentRequests
          requests={overview.recent.slice(0, 8)}
          empty="No requests yet. The first one appears here automatically."
          all="All requests"
        />
        <div className="flex flex-col gap-6">
          <AlertsPanel overview={overview} />
          <StatusPanel />
        </div>
      </div>
    </div>
  )
}

/** The service computes the rate over a week, independent of the range of the tiles. */
function Burn({ overview: { burn } }: { overview: Overview }) {
  const perDay = atomic(burn.per_day_atomic)
  // A wallet that pays each request does not run out of credit.
  const isWalletAccount = useX402Wallet() !== undefined
  // A rate that would last for years says nothing about the account.
  if (burn.days_left === null || burn.days_left > 999 || perDay === 0n || isWalletAccount) return null
  const days = Math.floor(burn.days_left)
  return (
    <p className="-mt-3 text-muted" data-testid="burn">
      ≈ {days} {days === 1 ? 'day' : 'days'} left at {formatAmount(perDay)} per day (average of the last 7 days, or
      since your first request).
    </p>
  )
}

function AlertsPanel({ overview: { alerts } }: { overview: Overview }) {
  const tones = { info: 'settled', warning: 'held', error: 'failed' } as const
  const words = { info: 'Note', warning: 'Warning', error: 'Action needed' }
  return (
    <Panel title="Alerts">
      {alerts.length === 0 && <p className="text-muted">No alerts.</p>}
      <ul className="flex flex-col gap-3">
        {alerts.map(({ code, level, message, href }) => (
          <li key={`${code} ${href}`}>
            <StateMark mark={tones[level]} word={words[level]} />
            <a href={href} className="block hover:underline">
              {message}
            </a>
          </li>
        ))}
      </ul>
    </Panel>
  )
}

/** The ledger by what keeps the service from serving, the chain by the last comparison, the others by how they have answered. */
function StatusPanel() {
  const readiness = useQuery(readinessQuery)
  const status = useQuery(statusQuery)
  return (
    <Panel
      title="Status"
      actions={
        <Link to="/status" className="text-sm link">
          History
        </Link>
      }
    >
      <Loaded query={readiness} skeleton={<div className="skeleton h-20" />}>
        {({ problems, parts }) => {
          const [problem] = Object.values(problems)
          const rows = [
            ['Ledger', ...(problem === undefined ? standings.working : (['failed', problem] as const))],
            ['Model', ...standings[parts.model]],
            ['Chain', ...(status.data === undefined ? standings.unknown : standings[status.data.chain])],
            ['Search', ...standings[parts.search]],
          ] as const
          return (
            <dl className="grid grid-cols-[1fr_auto] gap-y-1.5">
              {rows.map(([name, mark, word]) => (
                <div key={name} className="contents">
                  <dt className="text-muted">{name}</dt>
                  <dd>
                    <StateMark mark={mark} word={word} />
                  </dd>
                </div>
              ))}
            </dl>
          )
        }}
      </Loaded>
    </Panel>
  )
}

function OverviewSkeleton() {
  return (
    <div className="flex flex-col gap-6" aria-hidden="true">
      <div className="grid grid-cols-2 gap-4 lg:grid-cols-5">
        {['spend', 'requests', 'tokens', 'errors', 'latency'].map((tile) => (
          <div key={tile} className="skeleton h-28" />
        ))}
      </div>
      <div className="skeleton h-80" />
    </div>
  )
}
