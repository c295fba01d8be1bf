import { useInfiniteQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { operatorAccountsQuery } from '../../api/queries.ts'
import type { OperatorAccount } from '../../api/shapes.ts'
import { atomic } from '../../money/format.ts'
import { Sum } from '../../ui/amount.tsx'
import { Button } from '../../ui/button.tsx'
import { CopyableId } from '../../ui/copy.tsx'
import { Segmented, TextField } from '../../ui/field.tsx'
import { Form } from '../../ui/form.tsx'
import { Loaded, Skeleton } from '../../ui/loaded.tsx'
import { EmptyState, Panel } from '../../ui/panel.tsx'
import { StateMark } from '../../ui/state-mark.tsx'
import { numbers, Table } from '../../ui/table.tsx'
import { Time } from '../../ui/time.tsx'
import { OperatorLayout } from './operator-layout.tsx'

export function AccountsPage() {
  const search = useSearch({ strict: false }) as { find?: string; kind?: string }
  const { find = '' } = search
  const kind = search.kind === 'wallet' ? 'wallet' : 'all'
  const accounts = useInfiniteQuery(operatorAccountsQuery(find, kind))
  return (
    <OperatorLayout title="Accounts" lead="All accounts, newest first. Spend covers the last 30 days.">
      <FindForm find={find} kind={kind} />
      <Panel flush testId="operator-accounts">
        <Loaded query={accounts} skeleton={<Skeleton lines={8} height={24} inset />}>
          {({ pages }) => {
            const rows = pages.flatMap(({ data }) => data)
            if (rows.length > 0) return <Accounts rows={rows} />
            return (
              <EmptyState title={find === '' && kind === 'all' ? 'No accounts yet' : 'No account matches'}>
                {kind === 'wallet' && 'Wallets appear here with their first payment over x402. '}
                {find === '' && kind === 'all'
                  ? 'The first sign-in with a wallet or a passkey creates an account.'
                  : 'Search by a whole account id, a whole address, or the beginning of a name.'}
              </EmptyState>
            )
          }}
        </Loaded>
      </Panel>
      {accounts.hasNextPage && (
        <div>
          <Button onClick={() => void accounts.fetchNextPage()} busy={accounts.isFetchingNextPage}>
            Show more
          </Button>
        </div>
      )}
    </OperatorLayout>
  )
}

type Kind = 'all' | 'wallet'

const kinds = [
  ['all', 'All'],
  ['wallet', 'Wallets (x402)'],
] as const

function FindForm({ find, kind }: { find: string; kind: Kind }) {
  const navigate = useNavigate()
  const [text, setText] = useState(find)
  // A link on another page may have changed the search.
  useEffect(() => setText(find), [find])
  const show = (next: Kind) =>
    void navigate({
      to: '/operator/accounts',
      search: { ...(text.trim() !== '' && { find: text.trim() }), ...(next === 'wallet' && { kind: next }) } as never,
    })
  return (
    <Form onSubmit={() => show(kind)} className="flex max-w-3xl flex-wrap items-end gap-2">
      <div className="min-w-48 flex-1">
        <TextField
          label="Account id, address, or beginning of a name"
          maxLength={200}
          value={text}
          onChange={setText}
        />
      </div>
      <Button type="submit">Search</Button>
      <Segmented label="Kind of account" value={kind} options={kinds} onChange={show} />
    </Form>
  )
}

const money = (name: 'available' | 'held' | 'unsettled' | 'spend_30d', head: string) =>
  numbers<OperatorAccount>(head, (account) => <Sum amount={atomic(account[`${name}_atomic`])} />)

function Accounts({ rows }: { rows: readonly OperatorAccount[] }) {
  return (
    <Table
      label="Accounts, newest first"
      rows={rows}
      rowKey={({ id }) => id}
      columns={[
        { head: 'Account', cell: (account) => <Name account={account} /> },
        money('available', 'Balance'),
        money('held', 'Held'),
        money('unsettled', 'Unsettled'),
        money('spend_30d', 'Spend'),
        { head: 'Last request', cell: (account) => <Last account={account} /> },
        { head: 'Created', cell: ({ created_at }) => <Time at={created_at} show="day" /> },
        { head: 'Status', cell: (account) => <AccountState account={account} /> },
      ]}
      rowTestId="operator-account"
      item={(account) => (
        <div className="grid grid-cols-[1fr_auto] gap-x-4 gap-y-1">
          <Name account={account} />
          <Sum amount={atomic(account.available_atomic)} className="text-right" />
          <span className="text-sm text-muted">
            <Sum amount={atomic(account.spend_30d_atomic)} /> in 30 days, <Last account={account} />
          </span>
          <AccountState account={account} />
        </div>
      )}
    />
  )
}

function Name({ account }: { account: OperatorAccount }) {
  return (
    <span className="flex min-w-0 flex-col">
      <span className="max-w-64 truncate font-medium">{account.name}</span>
      {account.wallet !== null && (
        <span className="text-sm text-muted">
          <CopyableId id={account.wallet} label="wallet address" short />
        </span>
      )}
      <span className="text-sm text-muted">
        <CopyableId id={account.id} label="account id" short />
      </span>
    </span>
  )
}

function Last({ account: { last_request_at } }: { account: OperatorAccount }) {
  return last_request_at === null ? <>no request</> : <Time at={last_request_at} show="age" />
}

const states = {
  open: ['settled', 'Open'],
  suspended: ['failed', 'Suspended'],
  closed: ['cancelled', 'Closed'],
} as const

function AccountState({ account: { status, suspended_reason } }: { account: OperatorAccount }) {
  const [mark, word] = states[status]
  return (
    <span title={suspended_reason ?? undefined}>
      <StateMark mark={mark} word={word} />
    </span>
  )
}
