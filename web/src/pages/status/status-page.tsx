import { useQuery } from '@tanstack/react-query'
import { readinessQuery, type Standing, solvencyQuery, statusQuery } from '../../api/queries.ts'
import type { Answer } from '../../api/shapes.ts'
import { usePageTitle } from '../../shell/page.tsx'
import { formatMs } from '../../ui/format-time.ts'
import { Loaded, Skeleton } from '../../ui/loaded.tsx'
import { Facts, Panel } from '../../ui/panel.tsx'
import { StateMark, standings } from '../../ui/state-mark.tsx'
import { Time } from '../../ui/time.tsx'
import { share, slotsOf } from './slots.ts'

type Status = Answer<'GET /api/status'>

/** Whether the service works, now and over the last day, and whether the chain holds what the ledger owes. Public. */
export function StatusPage() {
  usePageTitle('Status')
  const status = useQuery(statusQuery)
  const solvency = useQuery(solvencyQuery)
  return (
    <div className="mx-auto flex w-full max-w-4xl flex-col gap-6">
      <h1 className="text-2xl tracking-tight">Status</h1>
      <Panel title="Service" flush testId="service-status">
        <Loaded query={status} skeleton={<Skeleton lines={5} height={32} />}>
          {(data) => <ServiceRows status={data} />}
        </Loaded>
      </Panel>
      <Problems />
      <Panel title="Money">
        <Loaded query={solvency} skeleton={<Skeleton />}>
          {({ ok, block, checked_at, owed, on_chain, owed_back, unsettled }) => (
            <Facts
              rows={[
                [
                  'Ledger and chain',
                  <StateMark
                    key="ok"
                    mark={checked_at === null ? 'pending' : ok ? 'settled' : 'failed'}
                    word={checked_at === null ? 'Checking' : ok ? 'Match' : 'Differ'}
                  />,
                ],
                ['Block', block ?? '–'],
                ['Checked', checked_at === null ? '–' : <Time key="at" at={checked_at} show="age" />],
                ['Owed to customers', usdcOr(owed)],
                ['Held for them on chain', usdcOr(on_chain)],
                ['Charged, not yet paid on chain', usdcOr(unsettled)],
                ['Refunds the seller still owes', usdcOr(owed_back)],
              ]}
            />
          )}
        </Loaded>
      </Panel>
    </div>
  )
}

/** Absent before the first comparison. */
function usdcOr(amount: string | undefined): string {
  return amount === undefined ? '–' : `${amount} USDC`
}

function ServiceRows({ status }: { status: Status }) {
  const rows = [
    ['API', 'Accepts requests', ({ ok }: Slot) => (ok ? 'working' : 'failing')],
    ['Model', 'Model responses', ({ model }: Slot) => model],
    ['Web search', 'Search responses', ({ search }: Slot) => search],
    ['Chain', 'Deposits, payments and withdrawals', ({ chain }: Slot) => chain],
  ] as const
  return (
    <>
      <ul>
        {rows.map(([name, meaning, read]) => {
          const [mark, word] = standings[read(status)]
          return (
            <li
              key={name}
              className="grid grid-cols-1 items-center gap-x-6 gap-y-2 border-b border-rule px-4 py-3 md:grid-cols-[200px_1fr_110px]"
            >
              <span>
                <span className="block font-medium">{name}</span>
                <span className="block text-sm text-muted">{meaning}</span>
              </span>
              <HistoryStrip name={name} history={status.history} read={read} />
              <span className="md:justify-self-end">
                <StateMark mark={mark} word={word} />
              </span>
            </li>
          )
        })}
      </ul>
      <p className="flex flex-wrap justify-between gap-x-6 px-4 py-3 text-sm text-muted">
        <span>
          Last 24 hours in steps of 5 minutes; each step shows its worst minute. In a gap the service was not running.
        </span>
        <span>
          Database response time: <span className="num">{formatMs(status.database_ms)}</span>
        </span>
      </p>
    </>
  )
}

/** Reasons why the service does not accept requests, as it reports them. */
function Problems() {
  const { data } = useQuery(readinessQuery)
  const problems = Object.entries(data?.problems ?? {})
  if (problems.length === 0) return null
  return (
    <Panel title="Problems">
      <Facts rows={problems} />
    </Panel>
  )
}

type Slot = Omit<Answer<'GET /api/status'>['history'][number], 'start'>

const colours: Readonly<Record<Standing | 'gap', string>> = {
  working: 'var(--color-accent)',
  failing: 'var(--color-error)',
  unused: 'var(--color-rule)',
  off: 'var(--color-rule)',
  gap: 'transparent',
}

type HistoryStripProps = { name: string; history: Answer<'GET /api/status'>['history']; read: (slot: Slot) => Standing }

/** One part over the last day: a bar for each five minutes. Assistive software reads a percentage. */
function HistoryStrip({ name, history, read }: HistoryStripProps) {
  const slots = slotsOf(history, read, Date.now())
  const text = share(slots)
  return (
    <span className="flex items-center gap-3">
      <svg
        role="img"
        aria-label={`${name}, last 24 hours: ${text}`}
        viewBox={`0 0 ${slots.length} 20`}
        preserveAspectRatio="none"
        className="h-5 min-w-0 flex-1 rounded-sm bg-sunken"
      >
        {slots.map((standing, at) =>
          standing === 'gap' ? null : (
            // biome-ignore lint/suspicious/noArrayIndexKey: a slot is its place.
            <rect key={at} x={at} width={1} height={20} fill={colours[standing]} />
          ),
        )}
      </svg>
      <span className="num w-20 text-right text-sm text-muted">{text}</span>
    </span>
  )
}
