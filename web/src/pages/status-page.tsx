import { useQuery } from '@tanstack/react-query'
import { readinessQuery, solvencyQuery } from '../api/queries.ts'
import { usePageTitle } from '../shell/page.tsx'
import { Loaded, Skeleton } from '../ui/loaded.tsx'
import { Facts, Panel } from '../ui/panel.tsx'
import { StateMark } from '../ui/state-mark.tsx'
import { Time } from '../ui/time.tsx'

/** Whether the service works, and whether the chain holds what the ledger owes. For anybody. */
export function StatusPage() {
  usePageTitle('Status')
  const readiness = useQuery(readinessQuery)
  const solvency = useQuery(solvencyQuery)
  return (
    <div className="mx-auto flex w-full max-w-2xl flex-col gap-6">
      <h1 className="text-2xl tracking-tight">Status</h1>
      <Panel title="Service">
        <Loaded query={readiness} skeleton={<Skeleton />}>
          {({ ok, problems }) => (
            <Facts
              rows={[
                [
                  'Requests',
                  <StateMark key="ok" mark={ok ? 'settled' : 'failed'} word={ok ? 'Available' : 'Unavailable'} />,
                ],
                ...Object.entries(problems).map(([name, text]) => [name, text] as const),
              ]}
            />
          )}
        </Loaded>
      </Panel>
      <Panel title="Money">
        <Loaded query={solvency} skeleton={<Skeleton />}>
          {({ ok, block, checked_at }) => (
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
              ]}
            />
          )}
        </Loaded>
      </Panel>
    </div>
  )
}
