import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import { balanceQuery, depositsQuery, sessionQuery, solvencyQuery, withdrawalsQuery } from '../../api/queries.ts'
import type { Balance as BalanceShape, Deposit, Withdrawal } from '../../api/shapes.ts'
import { atomic, formatExact } from '../../money/format.ts'
import { Page } from '../../shell/page.tsx'
import { Balance, Sum } from '../../ui/amount.tsx'
import { Button } from '../../ui/button.tsx'
import { classNames } from '../../ui/class-names.ts'
import { downloadCsv } from '../../ui/csv.ts'
import { Segmented } from '../../ui/field.tsx'
import { Loaded, Skeleton } from '../../ui/loaded.tsx'
import { Panel } from '../../ui/panel.tsx'
import { StateMark } from '../../ui/state-mark.tsx'
import { Time } from '../../ui/time.tsx'
import { DepositPanel } from './deposit-panel.tsx'
import { Steps } from './steps.tsx'
import { WithdrawPanel } from './withdraw-panel.tsx'

export function FundsPage() {
  const session = useQuery(sessionQuery)
  const balance = useQuery(balanceQuery)
  return (
    <Page title="Funds">
      <Loaded query={balance} skeleton={<Skeleton lines={3} height={32} />}>
        {(data) => (
          <>
            <BalanceCard balance={data} />
            {session.data?.account && (
              <div className="grid items-start gap-6 lg:grid-cols-[3fr_2fr]">
                <DepositPanel session={session.data} account={session.data.account} />
                <WithdrawPanel session={session.data} account={session.data.account} balance={data} />
              </div>
            )}
          </>
        )}
      </Loaded>
      <History explorer={session.data?.chain?.explorer_url ?? null} />
    </Page>
  )
}

function BalanceCard({ balance }: { balance: BalanceShape }) {
  const rest = [
    ['Pending deposits', balance.pending_deposits_atomic],
    ['Pending withdrawals', balance.pending_withdrawals_atomic],
    ['Deposited, ever', balance.deposited_atomic],
    ['Withdrawn, ever', balance.withdrawn_atomic],
    ['Charged, ever', balance.charged_atomic],
  ] as const
  return (
    <section className="rounded-md border border-rule bg-surface" aria-label="Balance">
      <div className="flex flex-wrap gap-x-16 gap-y-4 p-6">
        <div>
          <p className="text-sm text-muted">Available</p>
          <Balance
            amount={atomic(balance.available_atomic)}
            label="Available"
            className="text-2xl font-medium tracking-tight"
          />
        </div>
        <div>
          <p className="text-sm text-muted">Held</p>
          <Balance
            amount={atomic(balance.held_atomic)}
            label="Held"
            className={classNames(
              'text-2xl tracking-tight',
              atomic(balance.held_atomic) > 0n ? 'text-held' : 'text-muted',
            )}
          />
          <p className="text-sm text-muted">
            {balance.open_requests === 0 ? (
              'by no open request'
            ) : (
              <>
                by {balance.open_requests} open {balance.open_requests === 1 ? 'request' : 'requests'}
                {balance.oldest_hold_at !== null && (
                  <>
                    , oldest <Time at={balance.oldest_hold_at} show="age" />
                  </>
                )}
              </>
            )}
          </p>
        </div>
      </div>
      <dl className="grid grid-cols-2 gap-x-8 gap-y-2 border-t border-rule px-6 py-4 md:grid-cols-5">
        {rest.map(([label, amount]) => (
          <div key={label}>
            <dt className="text-sm text-muted">{label}</dt>
            <dd>
              <Sum amount={atomic(amount)} />
            </dd>
          </div>
        ))}
      </dl>
      <SolvencyLine />
    </section>
  )
}

function SolvencyLine() {
  const { data } = useQuery(solvencyQuery)
  if (data === undefined) return null
  // A service that has just started has compared nothing yet.
  const mark = data.ok === null || data.checked_at === null ? 'pending' : data.ok ? 'settled' : 'failed'
  const words = {
    pending: 'Ledger and chain are being compared',
    settled: 'Ledger matches chain',
    failed: 'Ledger and chain differ',
  }
  return (
    <p className="flex flex-wrap items-center gap-x-3 border-t border-rule px-6 py-3 text-sm" data-testid="solvency">
      <StateMark mark={mark} word={words[mark]} />
      {data.block !== null && <span className="num text-muted">block {data.block}</span>}
      {data.checked_at !== null && (
        <span className="text-muted">
          <Time at={data.checked_at} show="age" />
        </span>
      )}
    </p>
  )
}

type Kind = 'all' | 'deposits' | 'withdrawals'
type Entry = { kind: 'deposit'; item: Deposit } | { kind: 'withdrawal'; item: Withdrawal }

function History({ explorer }: { explorer: string | null }) {
  const deposits = useQuery(depositsQuery)
  const withdrawals = useQuery(withdrawalsQuery)
  const [kind, setKind] = useState<Kind>('all')
  const entries = [
    ...(kind === 'withdrawals' ? [] : (deposits.data?.data ?? []).map((item): Entry => ({ kind: 'deposit', item }))),
    ...(kind === 'deposits' ? [] : (withdrawals.data?.data ?? []).map((item): Entry => ({ kind: 'withdrawal', item }))),
  ].sort((left, right) => (left.item.created_at < right.item.created_at ? 1 : -1))
  return (
    <Panel
      flush
      title="History"
      actions={
        <>
          <Segmented
            label="Show"
            value={kind}
            options={[
              ['all', 'All'],
              ['deposits', 'Deposits'],
              ['withdrawals', 'Withdrawals'],
            ]}
            onChange={setKind}
          />
          <Link to="/funds/statement" className="link px-1">
            Monthly statement
          </Link>
          <Button small icon="download" onClick={() => downloadCsv('funds.csv', historyRows(entries))}>
            CSV
          </Button>
        </>
      }
    >
      <Loaded
        query={deposits}
        skeleton={
          <div className="p-4">
            <Skeleton />
          </div>
        }
      >
        {() =>
          entries.length === 0 ? (
            <p className="p-4 text-muted">Nothing yet. A deposit appears here as soon as it is seen on chain.</p>
          ) : (
            <ul>
              {entries.map((entry) => (
                <HistoryRow key={entry.item.id} entry={entry} explorer={explorer} />
              ))}
            </ul>
          )
        }
      </Loaded>
    </Panel>
  )
}

function HistoryRow({ entry: { kind, item }, explorer }: { entry: Entry; explorer: string | null }) {
  const failed = item.state === 'failed'
  const done = item.state === 'credited' || (kind === 'withdrawal' && item.state === 'confirmed')
  const words = kind === 'deposit' ? ['Deposit', 'Credited', 'On its way'] : ['Withdrawal', 'Confirmed', 'On its way']
  return (
    <li
      data-testid={kind === 'deposit' ? 'deposit-row' : 'withdrawal-row'}
      data-state={item.state}
      className="grid gap-x-6 gap-y-2 border-b border-rule p-4 last:border-b-0 md:grid-cols-[200px_1fr_auto]"
    >
      <div>
        <p className="font-medium">{words[0]}</p>
        <p className="text-sm text-muted">
          <Time at={item.created_at} />
        </p>
        <StateMark
          mark={failed ? 'failed' : done ? 'settled' : 'pending'}
          word={failed ? 'Failed' : done ? words[1]! : words[2]!}
        />
      </div>
      <Steps steps={item.steps} failed={failed} reason={item.reason} explorer={explorer} />
      <p className="num text-right">
        {kind === 'deposit' ? '+' : '−'}
        {formatExact(atomic(item.amount_atomic))}
      </p>
    </li>
  )
}

function historyRows(entries: readonly Entry[]): string[][] {
  return [
    ['time', 'kind', 'state', 'amount_atomic', 'amount', 'tx_hash', 'id'],
    ...entries.map(({ kind, item }) => [
      item.created_at,
      kind,
      item.state,
      item.amount_atomic,
      item.amount,
      item.tx_hash ?? '',
      item.id,
    ]),
  ]
}
