import { useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { operatorRevenueQuery } from '../../api/queries.ts'
import type { OperatorRevenue } from '../../api/shapes.ts'
import { TimeChart } from '../../charts/time-chart.tsx'
import { atomic, formatAmount, formatAxis, formatCharge, formatCount } from '../../money/format.ts'
import { Segmented } from '../../ui/field.tsx'
import { Loaded, Skeleton } from '../../ui/loaded.tsx'
import { EmptyState, Panel } from '../../ui/panel.tsx'
import { Table } from '../../ui/table.tsx'
import { OperatorLayout } from './operator-layout.tsx'

const ranges = [
  ['7', '7 d'],
  ['30', '30 d'],
  ['90', '90 d'],
] as const
type Range = (typeof ranges)[number][0]

export function RevenuePage() {
  const { days = '7' } = useSearch({ strict: false }) as { days?: Range }
  const navigate = useNavigate()
  const revenue = useQuery(operatorRevenueQuery(ranges.some(([range]) => range === days) ? days : '7'))
  const choose = (next: Range) => void navigate({ to: '.', search: { days: next } as never, replace: true })
  return (
    <OperatorLayout
      title="Revenue"
      lead="Charges to all customers, and what providers charge for them. Days are in UTC."
      actions={<Segmented label="Range" value={days} options={ranges} onChange={choose} />}
    >
      <Loaded query={revenue} skeleton={<Skeleton lines={10} height={24} />}>
        {(data) => <Revenue revenue={data} />}
      </Loaded>
    </OperatorLayout>
  )
}

function Revenue({ revenue }: { revenue: OperatorRevenue }) {
  const { days, models, providers, total, upstream_cost_note } = revenue
  const today = new Date().toISOString().slice(0, 10)
  return (
    <div className="flex flex-col gap-6">
      <Panel title="Charged by day (UTC)" testId="revenue-chart">
        <TimeChart
          label="Charged by day"
          kind="bars"
          height={200}
          granularity="day"
          buckets={days.map(({ day }) => ({ start: `${day}T00:00:00Z`, partial: day === today }))}
          series={[
            {
              id: 'charged',
              label: 'Charged',
              colour: 'var(--series-1)',
              values: days.map(({ charged_atomic }) => Number(charged_atomic)),
            },
          ]}
          format={(value) => formatAmount(BigInt(Math.round(value)))}
          formatAxis={(value) => formatAxis(BigInt(Math.round(value)))}
        />
      </Panel>
      <Panel title="By model" testId="revenue-models" flush>
        {models.length === 0 ? (
          <EmptyState title="No charges in this period" />
        ) : (
          <Table
            label="Revenue by model"
            rows={models}
            rowKey={({ model }) => model}
            columns={[
              { id: 'model', head: 'Model', cell: ({ model }) => <span className="num">{model}</span> },
              ...figures,
            ]}
            footer={['All models', ...figures.map(({ cell }) => cell(total))]}
          />
        )}
      </Panel>
      {providers.some(({ provider }) => provider !== '') && (
        <Panel title="By model and provider" testId="revenue-providers" flush>
          <Table
            label="Revenue by model and provider"
            rows={providers}
            rowKey={({ model, provider }) => `${model} ${provider}`}
            columns={[
              { id: 'model', head: 'Model', cell: ({ model }) => <span className="num">{model}</span> },
              {
                id: 'provider',
                head: 'Provider',
                cell: ({ provider }) => provider || <span className="text-muted">none asked</span>,
              },
              { id: 'attempts', head: 'Attempts', right: true, cell: ({ attempts }) => formatCount(attempts) },
              ...figures,
            ]}
          />
        </Panel>
      )}
      <p className="-mt-3 text-sm text-muted">
        {upstream_cost_note} Refunded to customers in this period:{' '}
        <span className="num">{formatCharge(atomic(total.given_back_atomic))}</span>.
      </p>
      <Panel title="By day" testId="revenue-days" flush>
        <Table
          label="Revenue by day"
          rows={[...days].reverse()}
          rowKey={({ day }) => day}
          columns={[{ id: 'day', head: 'Day (UTC)', cell: ({ day }) => day }, ...figures]}
          footer={['All days', ...figures.map(({ cell }) => cell(total))]}
        />
      </Panel>
    </div>
  )
}

type Figures = Pick<
  OperatorRevenue['models'][number],
  'requests' | 'charged_atomic' | 'search_atomic' | 'upstream_cost_atomic' | 'margin_atomic'
>

const known = (amount: string | null) =>
  amount === null ? <span className="font-sans text-muted">unknown</span> : formatCharge(atomic(amount))

const figures = [
  { id: 'requests', head: 'Requests', right: true, cell: ({ requests }: Figures) => formatCount(requests) },
  { id: 'charged', head: 'Charged', right: true, cell: (row: Figures) => formatCharge(atomic(row.charged_atomic)) },
  {
    id: 'search',
    head: 'Web search',
    right: true,
    cell: (row: Figures) => formatCharge(atomic(row.search_atomic)),
  },
  { id: 'cost', head: 'Upstream cost', right: true, cell: (row: Figures) => known(row.upstream_cost_atomic) },
  { id: 'margin', head: 'Margin', right: true, cell: (row: Figures) => known(row.margin_atomic) },
]
