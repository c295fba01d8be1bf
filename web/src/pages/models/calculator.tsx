import { useNavigate, useSearch } from '@tanstack/react-router'
import type { Usdc } from '../../../../src/money/usdc.ts'
import type { Model } from '../../api/shapes.ts'
import { formatAmount, formatCharge, formatExact } from '../../money/format.ts'
import { Button } from '../../ui/button.tsx'
import { TextField } from '../../ui/field.tsx'
import { Panel } from '../../ui/panel.tsx'
import { numbers, Table } from '../../ui/table.tsx'
import {
  defaultWorkload,
  type Estimate,
  estimate,
  type Workload,
  workloadExamples,
  workloadProblems,
} from './estimate.ts'

/** The cost of a workload on every model. The workload is in the address, so a link shows the same numbers. */
export function Calculator({ models }: { models: readonly Model[] }) {
  const search = useSearch({ strict: false }) as Partial<Workload>
  const navigate = useNavigate()
  const names = Object.keys(defaultWorkload) as (keyof Workload)[]
  const workload = Object.fromEntries(
    names.map((name) => [name, search[name]?.trim() ?? defaultWorkload[name]]),
  ) as Workload
  const problems = workloadProblems(workload)
  const canSearch = models.some(({ pricing }) => pricing.web_search !== undefined)
  const set = (changed: Partial<Workload>) => {
    const next = { ...workload, ...changed }
    // The router drops empty parameters, which would restore the default. Store a space instead.
    const kept = Object.entries(next).map(([name, value]) => [name, value === '' ? ' ' : value])
    void navigate({ to: '.', search: Object.fromEntries(kept) as never, replace: true, resetScroll: false })
  }
  const field = (name: keyof Workload, label: string, suffix?: string) => (
    <TextField
      label={label}
      mono
      inputMode="numeric"
      value={workload[name]}
      suffix={suffix}
      error={problems[name]}
      onChange={(text) => set({ [name]: text.replaceAll(/[\s,]/g, '') })}
    />
  )
  return (
    <Panel
      title="Cost calculator"
      testId="calculator"
      actions={workloadExamples
        .filter(([, example]) => canSearch || example.searches === '0')
        .map(([name, example]) => (
          <Button key={name} small variant="quiet" onClick={() => set({ ...example, requests: workload.requests })}>
            {name}
          </Button>
        ))}
    >
      <div className="grid grid-cols-1 items-start gap-6 md:grid-cols-[280px_1fr]">
        <div className="grid grid-cols-2 gap-3">
          {field('input', 'Input tokens')}
          {field('cached', 'Cached input', '%')}
          {field('output', 'Output tokens')}
          {canSearch && field('searches', 'Web searches')}
          <div className="col-span-2">{field('requests', 'Requests per month')}</div>
        </div>
        {Object.keys(problems).length === 0 ? (
          <Results models={models} workload={workload} />
        ) : (
          <p className="text-muted">Enter whole numbers to see the cost.</p>
        )}
      </div>
      <p className="mt-4 text-sm text-muted">
        Computed in this browser with the function that explains your charges. Cached input is billed like other input.
        {canSearch && ' Search results that the model reads count as input tokens.'}
      </p>
    </Panel>
  )
}

type Row = Estimate & { readonly id: string }

function Results({ models, workload }: { models: readonly Model[]; workload: Workload }) {
  const rows = models.map((model) => ({ id: model.id, ...estimate(model, workload) }))
  return (
    <Table
      label="Estimated cost per model"
      rows={rows}
      rowKey={({ id }) => id}
      columns={[
        { head: 'Model', cell: ({ id }) => <code className="num">{id}</code> },
        numbers<Row>('Per request', (row) => <PerRequest {...row} />),
        numbers<Row>('Per month', (row) => <PerMonth {...row} />),
      ]}
      item={(row) => (
        <div className="flex flex-wrap justify-between gap-x-4">
          <code className="num w-full">{row.id}</code>
          <span>
            <PerRequest {...row} /> <span className="text-sm text-muted">per request</span>
          </span>
          <span>
            <PerMonth {...row} /> <span className="text-sm text-muted">per month</span>
          </span>
        </div>
      )}
    />
  )
}

function PerRequest({ id, perRequest }: { id: string; perRequest: Usdc }) {
  return (
    <span className="num" data-testid="per-request" data-model={id} data-atomic={String(perRequest)}>
      {formatCharge(perRequest)}
    </span>
  )
}

function PerMonth({ id, perMonth }: { id: string; perMonth: Usdc }) {
  return (
    <span
      className="num"
      data-testid="per-month"
      data-model={id}
      data-atomic={String(perMonth)}
      title={formatExact(perMonth)}
    >
      {formatAmount(perMonth)}
    </span>
  )
}
