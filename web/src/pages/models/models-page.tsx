import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { modelsQuery, sessionQuery } from '../../api/queries.ts'
import type { Model } from '../../api/shapes.ts'
import { formatCount, formatPerMillion, formatPrice } from '../../money/format.ts'
import { Page } from '../../shell/page.tsx'
import { buttonClass } from '../../ui/button.tsx'
import { CopyIconButton } from '../../ui/copy.tsx'
import { Loaded, Skeleton } from '../../ui/loaded.tsx'
import { Panel } from '../../ui/panel.tsx'
import { numbers, Table } from '../../ui/table.tsx'
import { Calculator } from './calculator.tsx'

/** `/models`, with and without a session. All numbers are those of `/v1/models`. */
export function ModelsPage() {
  const models = useQuery(modelsQuery)
  const session = useQuery(sessionQuery)
  return (
    <Page title="Models" lead="Prices are in USDC per million tokens. There is no subscription, minimum or extra fee.">
      <Loaded query={models} skeleton={<Skeleton lines={8} height={24} />}>
        {({ data }) => (
          <>
            <Panel flush>
              <ModelList models={data} defaultModel={session.data?.default_model} />
              <p className="border-t border-rule px-4 py-3 text-sm text-muted">
                {data[0]?.pricing.web_search !== undefined &&
                  `Web search: ${formatPrice(data[0].pricing.web_search)} per search, only when the model searches. `}
                Reasoning is billed as output. Prices come live from{' '}
                <a className="link" href="/v1/models">
                  /v1/models
                </a>
                .
              </p>
            </Panel>
            <Calculator models={data} />
          </>
        )}
      </Loaded>
    </Page>
  )
}

function ModelList({ models, defaultModel }: { models: readonly Model[]; defaultModel: string | undefined }) {
  const name = (model: Model) => <Name model={model} isDefault={model.id === defaultModel} />
  return (
    <Table
      label="Models and prices"
      rows={models}
      rowKey={({ id }) => id}
      columns={[
        { head: 'Model', cell: name },
        ...figures,
        { head: 'Capabilities', cell: (model) => <Capabilities model={model} /> },
        { head: 'Playground', cell: (model) => <TryIt model={model} /> },
      ]}
      item={(model) => (
        <div className="flex flex-col gap-2">
          <div className="flex items-center justify-between gap-2">
            {name(model)}
            <TryIt model={model} />
          </div>
          <dl className="grid grid-cols-2 gap-x-4 gap-y-1">
            {figures.map(({ head, cell }) => (
              <div key={head} className="flex justify-between gap-2">
                <dt className="text-muted">{head}</dt>
                <dd className="num">{cell(model)}</dd>
              </div>
            ))}
          </dl>
          <Capabilities model={model} />
        </div>
      )}
    />
  )
}

const figures = [
  numbers<Model>('Input', ({ pricing }) => formatPerMillion(pricing.prompt)),
  numbers<Model>('Cached', ({ pricing }) => formatPerMillion(pricing.input_cache_read)),
  numbers<Model>('Output', ({ pricing }) => formatPerMillion(pricing.completion)),
  numbers<Model>('Context', ({ context_length }) => formatCount(context_length)),
  numbers<Model>('Max output', ({ max_output_tokens }) => formatCount(max_output_tokens)),
]

function Name({ model: { id }, isDefault }: { model: Model; isDefault: boolean }) {
  return (
    <span className="inline-flex min-w-0 items-center gap-1.5" data-testid="model-row" data-model={id}>
      <code className="num font-medium">{id}</code>
      <CopyIconButton text={id} label={`Copy model id ${id}`} />
      {isDefault && <span className="rounded-sm border border-rule px-1.5 text-xs text-muted">default</span>}
    </span>
  )
}

const capabilityWords: Readonly<Record<string, string>> = {
  reasoning: 'Reasoning',
  'tool-use': 'Tools',
  'web-search': 'Web search',
}

function Capabilities({ model: { tags } }: { model: Model }) {
  return (
    <ul className="flex flex-wrap gap-1" aria-label="Capabilities">
      {tags
        .filter((tag) => tag in capabilityWords)
        .map((tag) => (
          <li key={tag} className="rounded-sm bg-sunken px-1.5 py-px text-xs whitespace-nowrap">
            {capabilityWords[tag]}
          </li>
        ))}
    </ul>
  )
}

function TryIt({ model: { id } }: { model: Model }) {
  return (
    <Link
      to="/playground"
      search={{ model: id } as never}
      className={buttonClass({ small: true })}
      aria-label={`Try it: ${id}`}
    >
      Try
    </Link>
  )
}
