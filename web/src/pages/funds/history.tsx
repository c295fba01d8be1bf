import { type UseQueryResult, useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import { adjustmentsQuery, depositsQuery, withdrawalsQuery } from '../../api/queries.ts'
import { useX402Wallet } from '../../api/session.ts'
import type { Adjustment, Deposit, Withdrawal } from '../../api/shapes.ts'
import { atomic, formatExact } from '../../money/format.ts'
import { Button } from '../../ui/button.tsx'
import { downloadCsv } from '../../ui/csv.ts'
import { Segmented } from '../../ui/field.tsx'
import { Loaded, Skeleton } from '../../ui/loaded.tsx'
import { Panel } from '../../ui/panel.tsx'
import { StateMark } from '../../ui/state-mark.tsx'
import { Time, useNow } from '../../ui/time.tsx'
import { worstOf } from '../../ui/worst-of.ts'
import { Steps } from './steps.tsx'
import type { Chain } from './wallet-transfer.ts'
import { whyNotYet } from './why-not-yet.ts'

type Kind = Entry['kind']
type Entry =
  | { readonly kind: 'deposit'; readonly item: Deposit }
  | { readonly kind: 'withdrawal'; readonly item: Withdrawal }
  | { readonly kind: 'adjustment'; readonly item: Adjustment }

const choicesOf = (isWalletAccount: boolean) =>
  [
    ['all', 'All'],
    ['deposit', isWalletAccount ? 'Payments' : 'Deposits'],
    ['withdrawal', isWalletAccount ? 'Refunds' : 'Withdrawals'],
    ['adjustment', 'Adjustments'],
  ] as const

/** Money in and out, other than by requests, newest first. */
export function History({ chain }: { chain: Chain | null }) {
  const deposits = useQuery(depositsQuery)
  const withdrawals = useQuery(withdrawalsQuery)
  const adjustments = useQuery(adjustmentsQuery)
  const isWalletAccount = useX402Wallet() !== undefined
  const [shown, setShown] = useState<Kind | 'all'>('all')
  const entries = [
    ...(deposits.data?.data ?? []).map((item): Entry => ({ kind: 'deposit', item })),
    ...(withdrawals.data?.data ?? []).map((item): Entry => ({ kind: 'withdrawal', item })),
    ...(adjustments.data?.data ?? []).map((item): Entry => ({ kind: 'adjustment', item })),
  ]
    .filter(({ kind }) => shown === 'all' || shown === kind)
    .sort((left, right) => (left.item.created_at < right.item.created_at ? 1 : -1))
  const queries = [deposits, withdrawals, adjustments] as const
  const isCut = queries.some(({ data }) => data?.has_more)
  return (
    <Panel
      flush
      title="History"
      actions={
        <>
          <Segmented label="Show" value={shown} options={choicesOf(isWalletAccount)} onChange={setShown} />
          <Link to="/funds/statement" className="link px-1">
            Monthly statement
          </Link>
          <Button
            small
            icon="download"
            disabled={queries.some(({ data }) => data === undefined)}
            onClick={() => downloadCsv('funds.csv', historyRows(entries))}
          >
            CSV
          </Button>
        </>
      }
    >
      <Loaded query={worstOf<UseQueryResult<unknown>>(...queries)} skeleton={<Skeleton inset />}>
        {() =>
          entries.length === 0 ? (
            <p className="p-4 text-muted">
              Nothing yet.{' '}
              {isWalletAccount
                ? 'Payments over x402 appear here with the request that they paid for.'
                : 'Deposits appear here as soon as they are seen on chain.'}
            </p>
          ) : (
            <ul>
              {entries.map((entry) =>
                entry.kind === 'adjustment' ? (
                  <AdjustmentRow key={entry.item.id} adjustment={entry.item} />
                ) : (
                  <TransferRow key={entry.item.id} entry={entry} chain={chain} />
                ),
              )}
            </ul>
          )
        }
      </Loaded>
      {isCut && (
        <p className="border-t border-rule px-4 py-2 text-sm text-muted">
          This list and the CSV contain the newest 100 entries of each kind. The export in Settings contains all of
          them.
        </p>
      )}
    </Panel>
  )
}

type RowProps = {
  name: string
  at: string
  mark?: ReactNode
  children: ReactNode
  amount: string
  'data-testid': string
}

function Row({ name, at, mark, children, amount, ...rest }: RowProps & { 'data-state'?: string }) {
  return (
    <li
      {...rest}
      className="grid gap-x-6 gap-y-2 border-b border-rule p-4 last:border-b-0 md:grid-cols-[200px_1fr_auto]"
    >
      <div>
        <p className="font-medium">{name}</p>
        <p className="text-sm text-muted">
          <Time at={at} />
        </p>
        {mark}
      </div>
      <div className="flex flex-col gap-2">{children}</div>
      <p className="num text-right">{amount}</p>
    </li>
  )
}

function TransferRow({ entry, chain }: { entry: Exclude<Entry, { kind: 'adjustment' }>; chain: Chain | null }) {
  const { kind, item } = entry
  const now = useNow(10_000)
  const failed = item.state === 'failed'
  const done = item.state === 'credited' || (kind === 'withdrawal' && item.state === 'confirmed')
  const name =
    kind === 'deposit'
      ? item.source === 'x402'
        ? 'Payment over x402'
        : 'Deposit'
      : item.is_refund
        ? 'Refund to the wallet'
        : 'Withdrawal'
  const why = kind === 'deposit' ? whyNotYet(item, chain, now) : undefined
  return (
    <Row
      data-testid={kind === 'deposit' ? 'deposit-row' : 'withdrawal-row'}
      data-state={item.state}
      name={name}
      at={item.created_at}
      mark={
        <StateMark
          mark={failed ? 'failed' : done ? 'settled' : 'pending'}
          word={failed ? 'Failed' : done ? (kind === 'deposit' ? 'Credited' : 'Confirmed') : 'In progress'}
        />
      }
      amount={`${kind === 'deposit' ? '+' : '−'}${formatExact(atomic(item.amount_atomic))}`}
    >
      <Steps steps={item.steps} failed={failed} reason={item.reason} explorer={chain?.explorer_url ?? null} />
      {/* A deposit that takes long explains itself: it is small, or something is slow. */}
      {why !== undefined && <p className="text-sm text-held">{why}</p>}
    </Row>
  )
}

function AdjustmentRow({ adjustment: { amount_atomic, reason, created_at } }: { adjustment: Adjustment }) {
  const amount = atomic(amount_atomic)
  return (
    <Row
      data-testid="adjustment-row"
      name={amount > 0n ? 'Refund' : 'Charge'}
      at={created_at}
      amount={`${amount > 0n ? '+' : ''}${formatExact(amount)}`}
    >
      <p>{reason}</p>
    </Row>
  )
}

function historyRows(entries: readonly Entry[]): string[][] {
  return [
    ['time', 'kind', 'state', 'amount_atomic', 'amount', 'tx_hash', 'reason', 'id'],
    ...entries.map(({ kind, item }) => [
      item.created_at,
      kind,
      kind === 'adjustment' ? 'made' : item.state,
      item.amount_atomic,
      item.amount,
      kind === 'adjustment' ? '' : (item.tx_hash ?? ''),
      item.reason ?? '',
      item.id,
    ]),
  ]
}
