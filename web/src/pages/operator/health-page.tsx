import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { operatorHealthQuery } from '../../api/queries.ts'
import type { OperatorHealth } from '../../api/shapes.ts'
import { atomic, formatAmount, formatCount } from '../../money/format.ts'
import { formatSpan } from '../../ui/format-time.ts'
import { Loaded, Skeleton } from '../../ui/loaded.tsx'
import { Panel } from '../../ui/panel.tsx'
import { StateMark, standings } from '../../ui/state-mark.tsx'
import { numbers, Table } from '../../ui/table.tsx'
import { Time } from '../../ui/time.tsx'
import { OperatorLayout } from './operator-layout.tsx'

export function HealthPage() {
  const health = useQuery(operatorHealthQuery)
  return (
    <OperatorLayout title="Operator" lead="Open problems and the health of every component. Read-only.">
      <Loaded query={health} skeleton={<Skeleton lines={10} height={24} />}>
        {(data) => (
          <div className="flex flex-col gap-6">
            <Attention items={data.attention} />
            <div className="grid grid-cols-1 items-start gap-6 lg:grid-cols-2">
              <Parts parts={data.parts} />
              <Queues queues={data.queues} />
            </div>
            <Nodes nodes={data.nodes} />
          </div>
        )}
      </Loaded>
    </OperatorLayout>
  )
}

function Attention({ items }: { items: OperatorHealth['attention'] }) {
  return (
    <Panel title="Needs your attention" testId="attention" flush={items.length > 0}>
      {items.length === 0 && <StateMark mark="settled" word="Nothing needs your attention." />}
      <ul>
        {items.map(({ code, level, title, detail, since, account_id, runbook }) => (
          <li
            key={`${code} ${detail}`}
            data-testid="attention-item"
            className="flex items-start justify-between gap-x-6 gap-y-1 border-b border-rule px-4 py-3 last:border-b-0 max-sm:flex-col"
          >
            <div className="min-w-0 flex-1">
              <StateMark mark={level === 'error' ? 'failed' : 'held'} word={title} />
              <p className="text-sm break-words text-muted">{detail}</p>
            </div>
            <p className="flex flex-wrap items-baseline gap-x-4 text-sm">
              {since !== null && (
                <span className="text-muted">
                  <Time at={since} show="age" />
                </span>
              )}
              {account_id !== null && (
                <Link to="/operator/accounts" search={{ find: account_id } as never} className="link">
                  Account
                </Link>
              )}
              <a href={runbook} className="link">
                Runbook
              </a>
            </p>
          </li>
        ))}
      </ul>
    </Panel>
  )
}

function Parts({ parts }: { parts: OperatorHealth['parts'] }) {
  return (
    <Panel title="Components" testId="parts" flush>
      <ul>
        {parts.map(({ name, state, detail }) => (
          <li key={name} className="grid grid-cols-[1fr_auto] gap-x-4 border-b border-rule px-4 py-2 last:border-b-0">
            <span>{name}</span>
            <StateMark mark={standings[state][0]} word={standings[state][1]} />
            <span className="col-span-2 text-sm text-muted">{detail}</span>
          </li>
        ))}
      </ul>
    </Panel>
  )
}

type Queue = OperatorHealth['queues'][number]
type Node = OperatorHealth['nodes'][number]

function Queues({ queues }: { queues: OperatorHealth['queues'] }) {
  return (
    <Panel title="Queues" testId="queues" flush>
      <Table
        label="Queues"
        rows={queues}
        rowKey={({ name }) => name}
        columns={[
          { head: 'Queue', cell: ({ name }) => name },
          numbers<Queue>('Waiting', ({ waiting }) => formatCount(waiting)),
          numbers<Queue>('Amount', ({ amount_atomic: amount }) =>
            amount === null ? '–' : formatAmount(atomic(amount)),
          ),
          numbers<Queue>('Oldest', ({ oldest_seconds: age }) => (age === null ? '–' : formatSpan(age * 1000))),
        ]}
      />
    </Panel>
  )
}

function Nodes({ nodes }: { nodes: OperatorHealth['nodes'] }) {
  return (
    <Panel title="Nodes" testId="nodes" flush>
      <Table
        label="Nodes"
        rows={nodes}
        rowKey={({ id }) => id}
        columns={[
          {
            head: 'Node',
            cell: ({ id, this_node }) => (
              <span className="num">
                {id.slice(0, 8)}
                {this_node && <span className="font-sans text-muted"> (this one)</span>}
              </span>
            ),
          },
          {
            head: 'State',
            cell: ({ alive }) => <StateMark mark={alive ? 'settled' : 'failed'} word={alive ? 'Alive' : 'Dead'} />,
          },
          numbers<Node>('Lease', ({ lease_seconds: seconds }) =>
            seconds >= 0 ? `${formatSpan(seconds * 1000)} left` : `ended ${formatSpan(-seconds * 1000)} ago`,
          ),
          numbers<Node>('Started', ({ started_at }) => <Time at={started_at} />),
        ]}
      />
    </Panel>
  )
}
