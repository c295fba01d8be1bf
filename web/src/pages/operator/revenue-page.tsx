import { useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { operatorRevenueQuery } from '../../api/queries.ts'
import type { OperatorRevenue } from '../../api/shapes.ts'
import { DayBars } from '../../charts/day-bars.tsx'
import { atomic, formatCharge, formatCount } from '../../money/format.ts'
import { Segmented } from '../../ui/field.tsx'
import { Loaded, Skeleton } from '../../ui/loaded.tsx'
import { EmptyState, numeric, Panel } from '../../ui/panel.tsx'
import { numbers, Table } from '../../ui/table.tsx'
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
  return (
    <div className="flex flex-col gap-6">
      <Panel title="Charged by day (UTC)" testId="revenue-chart">
        <DayBars
          label="Charged by day"
          days={days.map(({ day, charged_atomic }) => [day, charged_atomic])}
          height={200}
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
            columns={[{ head: 'Model', cell: ({ model }) => numeric(model) }, ...figures]}
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
              { head: 'Model', cell: ({ model }) => numeric(model) },
              { head: 'Provider', cell: ({ provider }) => provider || <span className="text-muted">none asked</span> },
              numbers('Attempts', ({ attempts }: OperatorRevenue['providers'][number]) => formatCount(attempts)),
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
          columns={[{ head: 'Day (UTC)', cell: ({ day }) => day }, ...figures]}
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
  numbers('Requests', ({ requests }: Figures) => formatCount(requests)),
  numbers('Charged', (row: Figures) => formatCharge(atomic(row.charged_atomic))),
  numbers('Web search', (row: Figures) => formatCharge(atomic(row.search_atomic))),
  numbers('Upstream cost', (row: Figures) => known(row.upstream_cost_atomic)),
  numbers('Margin', (row: Figures) => known(row.margin_atomic)),
]
