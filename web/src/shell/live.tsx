import { type QueryClient, useQueryClient } from '@tanstack/react-query'
import { createContext, type ReactNode, useContext, useEffect, useMemo, useRef, useState } from 'react'
import { isShort } from '../api/queries.ts'
import type { Deposit, LedgerRequest, StreamEvent, Withdrawal } from '../api/shapes.ts'

// One stream of events keeps all pages up to date.

export type LiveStatus = 'connecting' | 'live' | 'lost'
type Listener = (event: StreamEvent) => void

type Live = { readonly status: LiveStatus; readonly subscribe: (listener: Listener) => () => void }

const LiveContext = createContext<Live>({ status: 'connecting', subscribe: () => () => {} })

const pollMs = 10_000
const lostAfterMs = 5_000
const reconnectMs = 2_000
/** Sums change with every request; under load they are refetched at most this often. */
const sumsMs = 1_500

export function LiveUpdates({ children }: { children: ReactNode }) {
  const client = useQueryClient()
  const [status, setStatus] = useState<LiveStatus>('connecting')
  const listeners = useRef(new Set<Listener>())

  useEffect(() => {
    const renewSums = throttle(
      () => renew(client, ['balance'], ['overview'], ['usage'], ['keys'], ['requests', 'totals']),
      sumsMs,
    )
    const follow = (event: StreamEvent) => {
      apply(client, event, renewSums)
      // From here on every change arrives as an event. Unless the stream was resumed, earlier changes did not: refetch everything shown.
      if (event.type === 'ready' && !event.resumed) {
        renew(client, ['balance'], ['deposits'], ['withdrawals'], ['adjustments'], ['overview'], ['usage'], ['keys'])
        renew(client, ['requests', 'one'], ['requests', 'totals'])
        // A switch of accounts in another window ends the stream. The next one belongs to the other account.
        renew(client, ['session'])
        void client.invalidateQueries({ queryKey: ['requests', 'list'], predicate: isShort })
      }
      for (const listener of listeners.current) listener(event)
    }
    return connect(follow, setStatus)
  }, [client])

  useEffect(() => {
    if (status !== 'lost') return
    const timer = setInterval(() => {
      renew(client, ['balance'], ['overview'], ['deposits'], ['withdrawals'])
      void client.invalidateQueries({ queryKey: ['requests'], predicate: isShort })
    }, pollMs)
    return () => clearInterval(timer)
  }, [client, status])

  const live = useMemo<Live>(
    () => ({
      status,
      subscribe: (listener) => {
        listeners.current.add(listener)
        return () => listeners.current.delete(listener)
      },
    }),
    [status],
  )
  return <LiveContext value={live}>{children}</LiveContext>
}

export function useLiveStatus(): LiveStatus {
  return useContext(LiveContext).status
}

/** Calls the listener for every event for as long as the component is there. */
export function useLiveEvents(listener: Listener): void {
  const { subscribe } = useContext(LiveContext)
  const latest = useRef(listener)
  useEffect(() => {
    latest.current = listener
  })
  useEffect(() => subscribe((event) => latest.current(event)), [subscribe])
}

/** Keeps one EventSource open. EventSource reconnects, except after a non-200 response. */
function connect(onEvent: Listener, onStatus: (status: LiveStatus) => void): () => void {
  let source: EventSource
  let lostTimer: ReturnType<typeof setTimeout> | undefined
  let againTimer: ReturnType<typeof setTimeout> | undefined

  const open = () => {
    source = new EventSource('/api/stream')
    source.onopen = () => {
      clearTimeout(lostTimer)
      lostTimer = undefined
      onStatus('live')
    }
    source.onerror = () => {
      lostTimer ??= setTimeout(() => onStatus('lost'), lostAfterMs)
      if (source.readyState === EventSource.CLOSED) againTimer = setTimeout(open, reconnectMs)
    }
    const take = ({ data }: MessageEvent<string>) => onEvent(JSON.parse(data) as StreamEvent)
    for (const name of ['message', 'balance', 'request', 'deposit', 'withdrawal', 'unidentified', 'ready'])
      source.addEventListener(name, take)
  }

  open()
  return () => {
    clearTimeout(lostTimer)
    clearTimeout(againTimer)
    source.close()
  }
}

function apply(client: QueryClient, event: StreamEvent, renewSums: () => void): void {
  if (event.type === 'balance') client.setQueryData(['balance'], event.balance)
  if (event.type === 'request') {
    const queryKey = ['requests', 'one', event.request.id]
    // Only if a page has requested it: otherwise the requests of a busy account would fill the cache.
    if (client.getQueryState(queryKey) !== undefined) client.setQueryData(queryKey, event.request)
    replaceInLists(client, event.request)
    renewSums()
  }
  if (event.type === 'deposit') replaceItem<Deposit>(client, ['deposits'], event.deposit)
  if (event.type === 'withdrawal') {
    replaceItem<Withdrawal>(client, ['withdrawals'], event.withdrawal)
    // The list also contains how long withdrawals usually take.
    if (event.withdrawal.state === 'confirmed') renew(client, ['withdrawals'])
  }
  if (event.type === 'deposit' || event.type === 'withdrawal') renew(client, ['balance'], ['overview'])
}

type Pages = { readonly pages: readonly { readonly data: readonly LedgerRequest[] }[] }

/** Updates a row that is on the page, in place. The page itself adds new rows: it may be paused or filtered. */
function replaceInLists(client: QueryClient, request: LedgerRequest): void {
  client.setQueriesData<Pages>({ queryKey: ['requests', 'list'] }, (list) => {
    if (!list?.pages.some(({ data }) => data.some(({ id }) => id === request.id))) return list
    const pages = list.pages.map((page) => ({
      ...page,
      data: page.data.map((row) => (row.id === request.id ? request : row)),
    }))
    return { ...list, pages }
  })
}

function replaceItem<Item extends { readonly id: string }>(
  client: QueryClient,
  queryKey: readonly string[],
  item: Item,
): void {
  client.setQueryData<{ readonly data: readonly Item[] }>(queryKey, (list) => {
    if (list === undefined) return list
    const known = list.data.some(({ id }) => id === item.id)
    return { ...list, data: known ? list.data.map((one) => (one.id === item.id ? item : one)) : [item, ...list.data] }
  })
}

function renew(client: QueryClient, ...keys: readonly (readonly string[])[]): void {
  for (const queryKey of keys) void client.invalidateQueries({ queryKey })
}

/** Throttle: runs immediately, then at most once per interval; the last call always runs. */
function throttle(work: () => void, everyMs: number): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined
  let again = false
  return function run() {
    if (timer !== undefined) {
      again = true
      return
    }
    work()
    timer = setTimeout(() => {
      timer = undefined
      if (!again) return
      again = false
      run()
    }, everyMs)
  }
}
