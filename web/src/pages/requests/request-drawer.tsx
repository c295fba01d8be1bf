import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams } from '@tanstack/react-router'
import { useEffect, useId, useRef } from 'react'
import { keysQuery, requestQuery, sessionQuery } from '../../api/queries.ts'
import type { LedgerRequest, Session } from '../../api/shapes.ts'
import { atomic } from '../../money/format.ts'
import { usePageTitle } from '../../shell/page.tsx'
import { isBusy } from '../../shell/shortcuts.tsx'
import { codeFor } from '../../snippets/code.ts'
import { AnchorButton, buttonClass, IconButton } from '../../ui/button.tsx'
import { CopyableId, CopyButton, shorten } from '../../ui/copy.tsx'
import { formatMs } from '../../ui/format-time.ts'
import { Icon } from '../../ui/icon.tsx'
import { Loaded, Skeleton } from '../../ui/loaded.tsx'
import { Facts, Notice, numeric } from '../../ui/panel.tsx'
import { RequestMark, StateMark } from '../../ui/state-mark.tsx'
import { Time } from '../../ui/time.tsx'
import { Explain } from './explain.tsx'
import { RefusalNotice } from './request-list.tsx'
import { detail, paidTogether, settlementWords } from './request-words.ts'

/** One request, next to the log, with an address of its own. */
export function RequestDrawer() {
  const { id } = useParams({ strict: false }) as { id: string }
  const navigate = useNavigate()
  const request = useQuery(requestQuery(id))
  const titleId = useId()
  const panel = useRef<HTMLElement>(null)
  usePageTitle(`Request ${shorten(id, 8, 4)}`)
  const close = () => void navigate({ to: '/requests', search: true })

  useEffect(() => {
    panel.current?.focus()
    return () => {
      // Closed, with the focus in it: reading goes on at the row that it was opened from.
      if (document.activeElement !== document.body) return
      document.querySelector<HTMLElement>(`[data-id="${CSS.escape(id)}"] [data-row]`)?.focus({ preventScroll: true })
    }
  }, [id])
  useEffect(() => {
    const listen = (event: KeyboardEvent) => {
      if (event.key === 'Escape' && !isBusy(event.target)) close()
    }
    window.addEventListener('keydown', listen)
    return () => window.removeEventListener('keydown', listen)
  })
  return (
    <aside
      ref={panel}
      tabIndex={-1}
      aria-labelledby={titleId}
      data-testid="request-drawer"
      className="slide-in bg-surface outline-none md:fixed md:inset-y-0 md:right-0 md:z-30 md:w-[min(600px,calc(100vw-260px))] md:overflow-y-auto md:border-l md:border-edge max-md:rounded-md max-md:border max-md:border-rule"
    >
      <header className="sticky top-0 z-10 flex h-14 items-center justify-between gap-4 border-b border-rule bg-surface px-6 max-md:static max-md:px-4">
        <h2 id={titleId} className="text-lg">
          Request
        </h2>
        <IconButton icon="cross" label="Close" onClick={close} className="-mr-2" />
      </header>
      <div className="flex flex-col gap-6 p-6 max-md:p-4">
        <Loaded query={request} skeleton={<Skeleton lines={10} />}>
          {(data) => <Details request={data} />}
        </Loaded>
      </div>
    </aside>
  )
}

function Details({ request }: { request: LedgerRequest }) {
  const { data: session } = useQuery(sessionQuery)
  return (
    <>
      <Head request={request} session={session} />
      {request.error !== null && <Failure request={request} code={request.error.code} />}
      {request.status === 'cancelled' && (
        <Notice>
          {detail(request)}. {atomic(request.charged_atomic) > 0n && 'You were charged for the output so far.'}
        </Notice>
      )}
      <section className="flex flex-col gap-3">
        <h3 className="border-b border-rule pb-1 text-sm text-muted">Charge</h3>
        <Explain request={request} />
      </section>
      <Timeline request={request} />
      <Settlement request={request} session={session} />
      <section className="flex flex-col gap-2">
        <h3 className="border-b border-rule pb-1 text-sm text-muted">Prompt and answer</h3>
        <p>Not stored. We do not keep or log prompts and answers.</p>
      </section>
    </>
  )
}

function Head({ request, session }: { request: LedgerRequest; session: Session | undefined }) {
  return (
    <section className="flex flex-col gap-4">
      <Facts
        rows={[
          ['Status', <RequestMark key="status" status={request.status} />],
          ['Model', request.model ?? 'None'],
          ['Key', <KeyLink key="key" request={request} />],
          ['Time', <Time key="time" at={request.created_at} />],
          ['Request', <CopyableId key="id" id={request.id} label="request id" short />],
          [
            'Receipt',
            request.receipt && (
              <a href={request.receipt.url} className="link">
                Receipt no. {request.receipt.number}
              </a>
            ),
          ],
          [
            'Answer',
            `${request.stream ? 'streamed' : 'buffered'}${request.finish_reason === null ? '' : `, ended by ${request.finish_reason}`}`,
          ],
        ]}
      />
      <div className="flex flex-wrap gap-2">
        {session !== undefined && (
          <CopyButton small text={curlOf(request, session)}>
            Copy as curl
          </CopyButton>
        )}
        <Link
          to="/playground"
          search={{ ...(request.model !== null && { model: request.model }), key: request.key.id } as never}
          className={buttonClass({ small: true })}
        >
          <Icon name="playground" /> Open in Playground
        </Link>
        {request.status !== 'held' && request.status !== 'refused' && (
          <CopyButton small text={`${session?.public_url ?? window.location.origin}/r/${request.id}`}>
            Share receipt
          </CopyButton>
        )}
        <AnchorButton small icon="download" href={`/api/requests/${request.id}`} download={`${request.id}.json`}>
          Download JSON
        </AnchorButton>
      </div>
    </section>
  )
}

/** Everyone reads all requests of the account, but only admins read the keys of other members. */
function KeyLink({ request: { key } }: { request: LedgerRequest }) {
  const { data: keys } = useQuery(keysQuery)
  const name = (
    <>
      {key.name} {key.hint !== key.name && <span className="num text-muted">{key.hint}</span>}
    </>
  )
  if (!keys?.data.some(({ id }) => id === key.id)) return name
  return (
    <Link to="/keys/$id" params={{ id: key.id }} className="link">
      {name}
    </Link>
  )
}

/** The prompt is not stored, so its place is marked; the key is never known here. */
function curlOf(request: LedgerRequest, session: Session): string {
  return codeFor('curl', {
    baseUrl: session.base_url,
    apiKey: '$OPENAI_API_KEY',
    body: {
      model: request.model ?? session.default_model,
      messages: [{ role: 'user', content: '(the prompt is not stored; enter it here)' }],
      ...(request.stream && { stream: true }),
      ...(request.max_tokens !== null && { max_tokens: request.max_tokens }),
    },
  })
}

function Failure({ request, code }: { request: LedgerRequest; code: string }) {
  return (
    <RefusalNotice code={code}>
      <p>
        <a href={`/docs/errors#${code}`} className="num underline">
          {code}
        </a>
        {` · ${request.status}`}
      </p>
    </RefusalNotice>
  )
}

function Timeline({ request }: { request: LedgerRequest }) {
  return (
    <section className="flex flex-col gap-2">
      <h3 className="border-b border-rule pb-1 text-sm text-muted">Timeline</h3>
      <ol className="flex flex-col">
        {timelineOf(request).map(({ name, afterMs }) => (
          <li key={name} className="grid grid-cols-[16px_1fr_auto] items-center gap-2 py-1">
            <span
              aria-hidden="true"
              className={afterMs === null ? 'size-2 rounded-full border border-edge' : 'size-2 rounded-full bg-ink'}
            />
            <span className={afterMs === null ? 'text-muted' : undefined}>{name}</span>
            <span className="num text-muted">
              {afterMs === null ? 'waiting' : afterMs === 0 ? '0 ms' : `+${formatMs(afterMs)}`}
            </span>
          </li>
        ))}
      </ol>
    </section>
  )
}

function Settlement({ request, session }: { request: LedgerRequest; session: Session | undefined }) {
  const { settlement } = request
  const [mark, words] = settlementWords(request)
  const together = paidTogether(request)
  const explorer = session?.chain?.explorer_url ?? null
  return (
    <section className="flex flex-col gap-3" data-testid="settlement">
      <h3 className="border-b border-rule pb-1 text-sm text-muted">Settlement</h3>
      <Facts
        rows={[
          ['State', <StateMark key="state" mark={mark} word={words} />],
          ['Payment', together],
          ['Batch', settlement.batch && numeric(settlement.batch)],
          [
            'Position',
            settlement.batch_position !== null &&
              settlement.batch_size !== null &&
              `payment ${settlement.batch_position} of ${settlement.batch_size} in the batch`,
          ],
          ['Transaction', settlement.tx_hash && <Transaction hash={settlement.tx_hash} explorer={explorer} />],
          ['Reason', settlement.reason],
        ]}
      />
    </section>
  )
}

export function Transaction({ hash, explorer }: { hash: string; explorer: string | null }) {
  return (
    <span className="inline-flex items-center gap-1">
      <CopyableId id={hash} label="transaction" short />
      {explorer !== null && (
        <a href={`${explorer}/tx/${hash}`} target="_blank" rel="noreferrer" className="text-link">
          <span className="sr-only">Open in the explorer</span>
          <Icon name="external" />
        </a>
      )}
    </span>
  )
}

type Moment = {
  readonly name: string
  /** Since the request was received; null while it has not happened. */
  readonly afterMs: number | null
}

/** What happened when, as far as the row knows it. */
function timelineOf(request: LedgerRequest): readonly Moment[] {
  const { status, latency, settlement, stream } = request
  const received = Date.parse(request.created_at)
  const since = (instant: string | null) => (instant === null ? null : Math.max(0, Date.parse(instant) - received))
  if (status === 'refused')
    return [
      { name: 'Received', afterMs: 0 },
      { name: 'Refused', afterMs: since(request.ended_at) ?? 0 },
    ]
  const ended = latency.total_ms ?? since(request.ended_at)
  const moments: Moment[] = [{ name: 'Received, quoted and held', afterMs: 0 }]
  // A request that ended without output waits for nothing.
  if (status === 'held' || latency.first_token_ms !== null)
    moments.push({ name: 'First token', afterMs: latency.first_token_ms })
  if (status === 'held') return [...moments, { name: stream ? 'Last token' : 'Answer', afterMs: null }]
  moments.push({ name: endings[status], afterMs: ended })
  if (BigInt(request.charged_atomic) === 0n) return [...moments, { name: 'Hold released', afterMs: ended }]
  moments.push({ name: 'Charged; the rest was released', afterMs: ended })
  if (settlement.state === 'prepaid') return moments
  const settledMs = settlement.state === 'completed' ? since(settlement.changed_at) : null
  return [...moments, { name: 'Settled on chain', afterMs: settledMs }]
}

const endings = { succeeded: 'Last token', failed: 'Failed', cancelled: 'Client disconnected', held: '', refused: '' }
