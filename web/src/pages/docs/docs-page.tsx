import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { sessionQuery } from '../../api/queries.ts'
import { usePageTitle } from '../../shell/page.tsx'
import { firstCall } from '../../snippets/code.ts'
import { SnippetTabs } from '../../snippets/snippet-tabs.tsx'

const sections = [
  ['start', 'Start'],
  ['money', 'What a request costs'],
  ['keys', 'Keys'],
  ['errors', 'Errors'],
  ['receipts', 'Receipts'],
  ['reference', 'Reference'],
] as const

/** The short documentation, served from here: it needs no other origin and works without a network. */
export function DocsPage() {
  usePageTitle('Docs')
  const { data: session } = useQuery(sessionQuery)
  const baseUrl = session?.base_url ?? `${window.location.origin}/v1`
  return (
    <div className="mx-auto grid w-full max-w-5xl gap-8 md:grid-cols-[180px_1fr]">
      <nav aria-label="On this page" className="md:sticky md:top-6 md:self-start">
        <ul className="flex flex-wrap gap-x-4 gap-y-1 md:flex-col">
          {sections.map(([id, title]) => (
            <li key={id}>
              <a href={`#${id}`} className="text-muted hover:text-ink">
                {title}
              </a>
            </li>
          ))}
        </ul>
      </nav>
      <article className="flex min-w-0 flex-col gap-8">
        <div>
          <h1 className="text-2xl tracking-tight">Docs</h1>
          <p className="mt-1 text-muted">
            An inference API that speaks chat completions and is paid for in USDC, per request.
          </p>
        </div>
        <Section id="start">
          <p>
            Change two things in an OpenAI client: the base address to <code className="num">{baseUrl}</code>, and the
            key to one of yours. Everything else stays.
          </p>
          <SnippetTabs call={firstCall(baseUrl, '$OPENAI_API_KEY')} />
        </Section>
        <Section id="money">
          <ul className="flex list-disc flex-col gap-1 pl-5">
            <li>
              Before a request starts we hold its quote: the most it can cost. max_tokens decides it; the default is
              8192.
            </li>
            <li>When it ends we charge what it used, rounded up once to $0.000001, and return the rest as credit.</li>
            <li>A request that fails before any output costs nothing. A stream you stop costs what was produced.</li>
            <li>
              Reasoning is billed as output. A web search costs $0.008750; send web_search: false to bound the cost to
              the quote.
            </li>
          </ul>
        </Section>
        <Section id="keys">
          <p>
            Keys are made here, not through the API. A limit is hard: a request that could exceed it is refused before
            it starts, however many run at once.
          </p>
        </Section>
        <Section id="errors">
          <p>
            402 means money, 429 means pace, and every answer has a permanent code.{' '}
            <a href="/docs/errors" className="link">
              All codes, and what to do
            </a>
          </p>
        </Section>
        <Section id="receipts">
          <p>
            Every ended request has a receipt at <code className="num">/r/&lt;request id&gt;</code>: its numbers,
            hashed, signed and put under a root on chain. The page checks it in your browser; so does{' '}
            <code className="num">npx penny verify receipt.json</code>.
          </p>
        </Section>
        <Section id="reference">
          <ul className="flex flex-col gap-1">
            {[
              ['/openapi.json', 'OpenAPI 3.1 document'],
              ['/v1/models', 'Models and prices'],
              ['/llms.txt', 'For language models'],
            ].map(([href, title]) => (
              <li key={href}>
                <a href={href} className="link">
                  {title}
                </a>{' '}
                <span className="num text-sm text-muted">{href}</span>
              </li>
            ))}
          </ul>
        </Section>
      </article>
    </div>
  )
}

function Section({ id, children }: { id: (typeof sections)[number][0]; children: ReactNode }) {
  return (
    <section id={id} className="flex scroll-mt-6 flex-col gap-3">
      <h2 className="border-b border-rule pb-1 text-lg">{sections.find(([one]) => one === id)![1]}</h2>
      {children}
    </section>
  )
}
