import { type UseInfiniteQueryResult, useInfiniteQuery, useQuery, useQueryClient } from '@tanstack/react-query'
import { Outlet, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { useEffect, useMemo, useRef, useState } from 'react'
import { addressOf } from '../../api/call.ts'
import {
  forgetOlderPages,
  type RequestFilter,
  renewedPagesMax,
  requestsQuery,
  requestTotalsQuery,
  sessionQuery,
} from '../../api/queries.ts'
import type { LedgerRequest } from '../../api/shapes.ts'
import { useLiveEvents } from '../../shell/live.tsx'
import { BackLink, Page } from '../../shell/page.tsx'
import { usePreference, useShortcutsEnabled } from '../../shell/preferences.ts'
import { isBusy } from '../../shell/shortcuts.tsx'
import { firstCall } from '../../snippets/code.ts'
import { SnippetTabs } from '../../snippets/snippet-tabs.tsx'
import { AnchorButton, Button } from '../../ui/button.tsx'
import { Checkboxes } from '../../ui/field.tsx'
import { Icon } from '../../ui/icon.tsx'
import { ErrorPanel, Skeleton } from '../../ui/loaded.tsx'
import { useNarrow } from '../../ui/media.ts'
import { Popover } from '../../ui/menu.tsx'
import { EmptyState, Panel } from '../../ui/panel.tsx'
import { useNow } from '../../ui/time.tsx'
import { spanRenewMs } from '../usage/usage-range.ts'
import { requestColumns } from './columns.tsx'
import { FilterBar } from './filter-bar.tsx'
import { type Filters, isFiltered, matches, noFilters, parseFilters, toQuery, toSearch } from './filters.ts'
import { Histogram } from './histogram.tsx'
import { hear, showWaiting, type Tail, tailOf } from './live-tail.ts'
import { RequestRows, RequestTable } from './request-table.tsx'

/** The log: filtered by the address, read page by page, live at its top. */
export function RequestsPage() {
  const search = useSearch({ strict: false }) as Record<string, string>
  const { id: openId } = useParams({ strict: false }) as { id?: string }
  const navigate = useNavigate()
  const narrow = useNarrow()
  const filters = useMemo(() => parseFilters(search), [search])
  const [paused, pauseProps] = usePausedByReader()
  const filter = useMovingFilter(filters, paused)
  const live = search.live === 'true'
  const setSearch = (next: Filters, nextLive: boolean) =>
    void navigate({ to: '.', search: { ...toSearch(next), ...(nextLive && { live: 'true' }) } as never })
  const setFilters = (next: Filters) => setSearch(next, live)

  const list = useInfiniteQuery(requestsQuery(filter))
  const totals = useQuery(requestTotalsQuery(filter))
  // An account without requests sees that its first one will appear automatically. No row can move away.
  const isFirst = !isFiltered(filters) && !list.isPlaceholderData && isEmpty(list.data?.pages)
  const tail = useLiveTail(filter, live, paused, isFirst)
  const rows = useMemo(() => merge(tail.fresh, list.data?.pages ?? []), [tail.fresh, list.data])
  const client = useQueryClient()
  const gap = useGap(filter, (list.data?.pages.length ?? 0) > renewedPagesMax)
  const reload = () => {
    tail.clear()
    gap.close()
    // Pages that stayed would be extended while the first one is loaded.
    void client.resetQueries({ queryKey: requestsQuery(filter).queryKey })
  }
  const [columns, chooser] = useColumns()
  useRowKeys()
  // A return to the page starts at the top again, instead of loading ten thousand rows.
  useEffect(() => () => forgetOlderPages(client, filter), [client, filter])

  if (narrow && openId !== undefined) return <NarrowRequest />
  return (
    <Page
      title="Requests"
      actions={
        <>
          <Button
            data-testid="live"
            aria-pressed={live}
            variant="secondary"
            onClick={() => setSearch(filters, !live)}
            className={live ? 'border-accent! text-accent!' : undefined}
          >
            <span className={live ? 'size-2 rounded-full bg-accent' : 'size-2 rounded-full bg-edge'} />
            Live
          </Button>
          {!narrow && chooser}
          <ExportMenu filter={filter} />
        </>
      }
    >
      <FilterBar filters={filters} onChange={setFilters} rows={rows} />
      <Histogram filter={filter} onRange={(range) => setFilters({ ...filters, range })} />
      {list.error !== null && !list.isFetchNextPageError && (
        <ErrorPanel error={list.error} onRetry={() => void list.refetch()} busy={list.isFetching} />
      )}
      <div {...pauseProps} className="relative">
        <div className="absolute -top-4 left-1/2 z-10 flex w-max -translate-x-1/2 gap-2">
          {tail.waiting > 0 && (
            <Button small onClick={tail.show}>
              {tail.waiting} new
            </Button>
          )}
          {gap.isOpen && (
            <Button small onClick={reload}>
              Requests may be missing here. Reload
            </Button>
          )}
        </div>
        <Panel flush>
          {rows.length > 0 &&
            (narrow ? (
              <RequestRows rows={rows} hasMore={list.hasNextPage} totals={totals.data} openId={openId} />
            ) : (
              <RequestTable
                rows={rows}
                hasMore={list.hasNextPage}
                totals={totals.data}
                openId={openId}
                columns={columns}
              />
            ))}
          {rows.length === 0 && list.isPending && (
            <div aria-busy="true">
              <Skeleton lines={8} height={20} inset />
            </div>
          )}
          {rows.length === 0 && list.isSuccess && !list.hasNextPage && (
            <NoRows filtered={isFiltered(filters)} onClear={() => setFilters(noFilters)} />
          )}
        </Panel>
      </div>
      <More list={list} />
      <Outlet />
    </Page>
  )
}

function NarrowRequest() {
  return (
    <Page title="Request" lead={<BackLink to="/requests" search label="All requests" />}>
      <Outlet />
    </Page>
  )
}

/**
 * The start of a preset moves with the clock, so that "1 h" does not grow while the page is open. Not while the reader looks at a row:
 * the list is then loaded from its top again.
 */
function useMovingFilter(filters: Filters, paused: boolean): RequestFilter {
  const nowMs = useNow(spanRenewMs)
  const [untilMs, setUntilMs] = useState(nowMs)
  if (untilMs !== nowMs && !paused) setUntilMs(nowMs)
  const isMoving = typeof filters.range === 'string' && filters.range !== 'all'
  // Another filter object would cut the list to its first page.
  const at = isMoving ? untilMs : 0
  return useMemo(() => toQuery(filters, at), [filters, at])
}

type Pages = readonly { readonly data: readonly LedgerRequest[] }[]

function isEmpty(pages: Pages | undefined): boolean {
  return pages?.every(({ data }) => data.length === 0) ?? false
}

/** Removes duplicates: a row that arrived live and was loaded again appears once, in its latest version. */
function merge(fresh: readonly LedgerRequest[], pages: Pages): readonly LedgerRequest[] {
  const read = pages.flatMap(({ data }) => data)
  const known = new Set(read.map(({ id }) => id))
  return [...fresh.filter(({ id }) => !known.has(id)), ...read]
}

/**
 * New requests that match the filter, held back while the reader looks at a row. The first row of an empty list is always shown:
 * it moves no other row.
 */
function useLiveTail(filter: RequestFilter, live: boolean, paused: boolean, isFirst: boolean) {
  const asked = JSON.stringify(filter)
  const [kept, setKept] = useState<Tail>()
  const { fresh, waiting } = tailOf(kept, asked)
  useLiveEvents((event) => {
    if (event.type !== 'request') return
    const isAwaited = isFirst && fresh.length + waiting.length === 0
    const isTaken = (live || isAwaited) && matches(event.request, filter)
    const into = !isTaken ? undefined : paused && !isAwaited ? 'waiting' : 'fresh'
    setKept((tail) => hear(tailOf(tail, asked), event.request, into))
  })
  const show = () => setKept((tail) => showWaiting(tailOf(tail, asked)))
  return { fresh, waiting: waiting.length, show, clear: () => setKept(undefined) }
}

/** Whether the stream has skipped changes since this list was loaded. Only a long list stays incomplete: `LiveUpdates` reloads short ones. */
function useGap(filter: RequestFilter, isLong: boolean) {
  const [at, setAt] = useState<RequestFilter>()
  useLiveEvents((event) => {
    if (event.type === 'ready' && !event.resumed && isLong) setAt(filter)
  })
  return { isOpen: at === filter, close: () => setAt(undefined) }
}

/** New rows are held back while the reader hovers, focuses or has scrolled: the current row must not move. */
function usePausedByReader() {
  const [hovered, setHovered] = useState(false)
  const [focused, setFocused] = useState(false)
  const [scrolled, setScrolled] = useState(false)
  useEffect(() => {
    const measure = () => setScrolled(window.scrollY > 200)
    window.addEventListener('scroll', measure, { passive: true })
    return () => window.removeEventListener('scroll', measure)
  }, [])
  const props = {
    onPointerEnter: () => setHovered(true),
    onPointerLeave: () => setHovered(false),
    onFocus: () => setFocused(true),
    onBlur: () => setFocused(false),
  }
  return [hovered || focused || scrolled, props] as const
}

/** `j` and `k` move over the rows; Enter follows the row's own link. */
function useRowKeys(): void {
  const [enabled] = useShortcutsEnabled()
  useEffect(() => {
    if (!enabled) return
    const listen = (event: KeyboardEvent) => {
      const step = { j: 1, k: -1 }[event.key]
      if (step === undefined || event.metaKey || event.ctrlKey || event.altKey || isBusy(event.target)) return
      const links = [...document.querySelectorAll<HTMLAnchorElement>('[data-row]')]
      const at = links.indexOf(document.activeElement as HTMLAnchorElement)
      const next = at === -1 ? links.find(isBelowTopBar) : links[at + step]
      if (next === undefined) return
      event.preventDefault()
      next.focus({ focusVisible: true } as FocusOptions)
      next.scrollIntoView({ block: 'nearest' })
    }
    window.addEventListener('keydown', listen)
    return () => window.removeEventListener('keydown', listen)
  }, [enabled])
}

function isBelowTopBar(link: HTMLElement): boolean {
  return link.getBoundingClientRect().top > 100
}

function useColumns() {
  const [stored, setStored] = usePreference('requests.hidden', 'searches,quote')
  const hidden = stored.split(',')
  const columns = requestColumns.filter(({ id }) => id === 'time' || !hidden.includes(id))
  const choices = requestColumns.slice(1).map(({ id, head }) => [id, head] as const)
  const chooser = (
    <Popover
      label="Columns"
      align="right"
      buttonClassName="inline-flex h-8 items-center gap-2 rounded-md border border-edge bg-surface px-3 font-medium hover:bg-sunken"
      button={
        <>
          <Icon name="columns" /> Columns
        </>
      }
    >
      {() => (
        <Checkboxes
          label="Columns"
          className="px-1.5"
          all={choices}
          value={columns.map(({ id }) => id)}
          onChange={(shown) => setStored(choices.flatMap(([id]) => (shown.includes(id) ? [] : id)).join(','))}
        />
      )}
    </Popover>
  )
  return [columns, chooser] as const
}

function ExportMenu({ filter }: { filter: ReturnType<typeof toQuery> }) {
  const link = (format: 'csv' | 'ndjson') => addressOf('GET /api/requests', { query: { ...filter, format } })
  return (
    <>
      <AnchorButton icon="download" href={link('csv')} download="requests.csv" data-testid="export-csv">
        CSV
      </AnchorButton>
      <AnchorButton icon="download" href={link('ndjson')} download="requests.ndjson">
        JSON
      </AnchorButton>
    </>
  )
}

function NoRows({ filtered, onClear }: { filtered: boolean; onClear: () => void }) {
  const { data: session } = useQuery(sessionQuery)
  if (filtered) {
    return <EmptyState title="No requests match" action={<Button onClick={onClear}>Clear filters</Button>} />
  }
  return (
    <div className="p-4">
      <p className="mb-3 text-lg font-medium">No requests yet</p>
      <p className="mb-4 text-muted">Send one with one of your keys and it appears here automatically.</p>
      {session !== undefined && <SnippetTabs call={firstCall(session, '$OPENAI_API_KEY')} />}
    </div>
  )
}

type Reading = Pick<
  UseInfiniteQueryResult,
  'hasNextPage' | 'isFetchingNextPage' | 'isFetchNextPageError' | 'fetchNextPage' | 'error'
>

/** Reads the next page when the end of the list comes near. After an error only Retry does: the end is still near, so the observer would loop. */
function More({ list }: { list: Reading }) {
  const mark = useRef<HTMLDivElement>(null)
  const { hasNextPage, isFetchingNextPage, isFetchNextPageError, fetchNextPage, error } = list
  useEffect(() => {
    if (!hasNextPage || isFetchingNextPage || isFetchNextPageError) return
    // A busy page gets several observations in one call, oldest first: only the last one counts.
    const observer = new IntersectionObserver((moments) => moments.at(-1)!.isIntersecting && void fetchNextPage(), {
      rootMargin: '800px',
    })
    observer.observe(mark.current!)
    return () => observer.disconnect()
  }, [hasNextPage, isFetchingNextPage, isFetchNextPageError, fetchNextPage])
  return (
    <>
      {isFetchNextPageError && (
        <ErrorPanel error={error!} onRetry={() => void fetchNextPage()} busy={isFetchingNextPage} />
      )}
      <div ref={mark} className="flex justify-center" role="status">
        {isFetchingNextPage && <span className="text-muted">Loading older requests…</span>}
      </div>
    </>
  )
}
