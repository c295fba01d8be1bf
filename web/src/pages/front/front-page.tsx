import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { modelsQuery, sessionQuery } from '../../api/queries.ts'
import type { Model } from '../../api/shapes.ts'
import { formatCount, formatPerMillion, formatPrice } from '../../money/format.ts'
import { usePageTitle } from '../../shell/page.tsx'
import { EnvironmentBadge } from '../../shell/rail.tsx'
import { firstCall } from '../../snippets/code.ts'
import { SnippetTabs } from '../../snippets/snippet-tabs.tsx'
import { AnchorButton, buttonClass } from '../../ui/button.tsx'
import { Loaded, Skeleton } from '../../ui/loaded.tsx'
import { Panel } from '../../ui/panel.tsx'
import { numbers, Table } from '../../ui/table.tsx'

/** `/` without a session: what the service is, its prices, the first call, and the sign-in. */
export function FrontPage() {
  usePageTitle('Inference paid per request')
  const session = useQuery(sessionQuery)
  return (
    <div className="mx-auto flex w-full max-w-[1040px] flex-col gap-10 pt-4 pb-16 md:pt-10">
      <section className="flex max-w-2xl flex-col gap-4">
        {session.data !== undefined && (
          <span>
            <EnvironmentBadge environment={session.data.environment} />
          </span>
        )}
        <h1 className="text-[34px] leading-[42px] tracking-tight">
          An OpenAI-compatible API, paid per request in USDC
        </h1>
        <p className="text-lg text-muted">
          No subscription, no invoice and no minimum. Deposit USDC, create a key, and change one line in your client:
          the base URL.
        </p>
        <div className="flex flex-wrap gap-2">
          <Link to="/login" className={`${buttonClass({ variant: 'primary' })} h-10 px-4`}>
            Sign in
          </Link>
          <AnchorButton href="/docs" className="h-10 px-4">
            Read the docs
          </AnchorButton>
        </div>
      </section>

      <ul className="grid gap-6 border-t border-rule pt-6 md:grid-cols-3">
        {promises.map(([title, text]) => (
          <li key={title}>
            <h2 className="text-base font-medium">{title}</h2>
            <p className="mt-1 text-muted">{text}</p>
          </li>
        ))}
      </ul>

      <Panel title="Prices" flush testId="prices">
        <Prices />
      </Panel>

      <section aria-label="First request" className="flex flex-col gap-3">
        <h2 className="text-xl tracking-tight">Your first request</h2>
        <Loaded query={session} skeleton={<Skeleton lines={6} />}>
          {(data) => (
            <SnippetTabs call={firstCall(data, '$OPENAI_API_KEY')} only={['curl', 'python', 'node', 'ai-sdk']} />
          )}
        </Loaded>
        <p className="text-muted">
          Sign in to get a key. Errors, streaming and tool calls follow the OpenAI chat completions API; the{' '}
          <a className="link" href="/docs/guides/quickstart">
            quickstart
          </a>{' '}
          has the details.
        </p>
      </section>
    </div>
  )
}

const promises = [
  [
    'You know the price first',
    'Each request is quoted before it runs. We hold the quoted amount, charge what was used and release the rest.',
  ],
  ['Limits that hold', 'Give every key a budget. A request that could exceed it is refused before it starts.'],
  [
    'Receipts you can verify',
    'Every request gets a signed receipt. Payments settle on chain, and unspent money can be withdrawn.',
  ],
] as const

function Prices() {
  const models = useQuery(modelsQuery)
  return (
    <Loaded query={models} skeleton={<Skeleton lines={6} height={24} />}>
      {({ data }) => (
        <>
          <Table
            label="Prices per model"
            rows={data}
            rowKey={({ id }) => id}
            columns={[
              { head: 'Model', cell: ({ id }) => <code className="num">{id}</code> },
              numbers<Model>('Input', ({ pricing }) => formatPerMillion(pricing.prompt)),
              numbers<Model>('Output', ({ pricing }) => formatPerMillion(pricing.completion)),
              numbers<Model>('Context', ({ context_length }) => formatCount(context_length)),
            ]}
          />
          <p className="border-t border-rule px-4 py-3 text-sm text-muted">
            {data[0]?.pricing.web_search !== undefined &&
              `Web search: ${formatPrice(data[0].pricing.web_search)} per call, only when the model searches. `}
            Prices are in USDC per million tokens and come live from{' '}
            <a className="link" href="/v1/models">
              /v1/models
            </a>
            .{' '}
            <Link className="link" to="/models">
              Compare models and estimate your cost
            </Link>
          </p>
        </>
      )}
    </Loaded>
  )
}
