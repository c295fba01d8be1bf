import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { useState } from 'react'
import { keysQuery } from '../../api/queries.ts'
import { useRole } from '../../api/session.ts'
import type { Key } from '../../api/shapes.ts'
import { atomic, formatAmount } from '../../money/format.ts'
import { Page } from '../../shell/page.tsx'
import { Button } from '../../ui/button.tsx'
import { Loaded, Skeleton } from '../../ui/loaded.tsx'
import { EmptyState, Panel } from '../../ui/panel.tsx'
import { StateMark } from '../../ui/state-mark.tsx'
import { type Column, Table } from '../../ui/table.tsx'
import { Time } from '../../ui/time.tsx'
import { CreateKeyDialog, type IssuedKey, KeyActions, SecretDialog } from './key-actions.tsx'
import { restrictionsOf, windowWords } from './key-terms.ts'

export function KeysPage() {
  const keys = useQuery(keysQuery)
  const navigate = useNavigate()
  const mayCreate = useRole('developer')
  const [issued, setIssued] = useState<IssuedKey>()
  const { create } = useSearch({ strict: false }) as { create?: string }
  const setCreating = (on: boolean) => void navigate({ to: '/keys', search: (on ? { create: '1' } : {}) as never })
  const button = mayCreate ? (
    <Button variant="primary" icon="plus" onClick={() => setCreating(true)}>
      Create key
    </Button>
  ) : undefined
  return (
    <Page title="Keys" lead="Each key can have its own limit, expiry and restrictions." actions={button}>
      <Panel flush>
        <Loaded query={keys} skeleton={<Skeleton lines={5} height={24} inset />}>
          {({ data }) =>
            data.length === 0 ? (
              <EmptyState title="No keys yet" action={button}>
                A key lets an application spend from this account. Give each application its own key with a limit, so
                you know the most it can cost you.
                {!mayCreate && ' Developers, admins and owners of the account can create keys.'}
              </EmptyState>
            ) : (
              <Table
                label="API keys, newest first"
                rows={data}
                rowKey={({ id }) => id}
                rowTestId="key-row"
                canScroll={false}
                columns={columnsFor(setIssued)}
                item={(key) => <KeyItem apiKey={key} onIssued={setIssued} />}
              />
            )
          }
        </Loaded>
      </Panel>
      {issued !== undefined ? (
        <SecretDialog
          issued={issued}
          onClose={() => {
            setIssued(undefined)
            setCreating(false)
          }}
        />
      ) : (
        create !== undefined && mayCreate && <CreateKeyDialog onClose={() => setCreating(false)} onIssued={setIssued} />
      )}
    </Page>
  )
}

type Issued = (issued: IssuedKey) => void

/** `max-xl:hidden`: hidden where there is little room; shown on the key's page. */
const columnsFor = (onIssued: Issued): readonly Column<Key>[] => [
  {
    head: 'Name',
    className: 'max-w-48',
    cell: (key) => (
      <>
        <span className="block truncate">
          <KeyName apiKey={key} />
        </span>
        <Restrictions apiKey={key} />
      </>
    ),
  },
  {
    head: 'Key',
    className: 'max-xl:hidden',
    cell: (key) => <span className="num whitespace-nowrap text-muted">{hintOf(key)}</span>,
  },
  { head: 'Spend', cell: (key) => <LimitBar apiKey={key} /> },
  { head: 'Expires', cell: ({ expires_at: at }) => (at === null ? 'Never' : <Time at={at} show="day" />) },
  {
    head: 'Last used',
    className: 'max-xl:hidden',
    cell: ({ last_used_at: at }) => (at === null ? 'Never' : <Time at={at} show="age" />),
  },
  { head: 'Created', className: 'max-xl:hidden', cell: ({ created_at: at }) => <Time at={at} show="day" /> },
  { head: 'Status', cell: ({ status }) => <KeyMark status={status} /> },
  {
    head: 'Actions',
    isHeadHidden: true,
    className: 'text-right',
    cell: (key) => <KeyActions apiKey={key} onIssued={onIssued} />,
  },
]

function KeyItem({ apiKey, onIssued }: { apiKey: Key; onIssued: Issued }) {
  return (
    <div className="grid grid-cols-[1fr_auto] gap-x-4 gap-y-1">
      <span className="flex min-w-0 items-baseline gap-2">
        <KeyName apiKey={apiKey} />
        <span className="num text-sm text-muted">{hintOf(apiKey)}</span>
      </span>
      <span className="row-span-2 flex items-start gap-1">
        <KeyMark status={apiKey.status} />
        <span className="-my-1.5">
          <KeyActions apiKey={apiKey} onIssued={onIssued} />
        </span>
      </span>
      <LimitBar apiKey={apiKey} />
      <Restrictions apiKey={apiKey} />
    </div>
  )
}

const hintOf = ({ is_x402, hint }: Key) => (is_x402 ? 'the wallet' : hint)

function KeyName({ apiKey }: { apiKey: Key }) {
  return (
    <Link to="/keys/$id" params={{ id: apiKey.id }} className="truncate font-medium hover:underline">
      {apiKey.name}
    </Link>
  )
}

function Restrictions({ apiKey }: { apiKey: Key }) {
  const words = restrictionsOf(apiKey)
  if (words.length === 0) return null
  return <span className="block text-sm whitespace-normal text-muted">{words.join(', ')}</span>
}

const keyMarks = {
  active: ['settled', 'Active'],
  disabled: ['cancelled', 'Disabled'],
  revoked: ['failed', 'Revoked'],
  expired: ['cancelled', 'Expired'],
} as const

export function KeyMark({ status }: { status: Key['status'] }) {
  const [mark, word] = keyMarks[status]
  return <StateMark mark={mark} word={word} />
}

/** Spent against limit, as a bar and in words. Held money counts: it may still be spent. */
export function LimitBar({ apiKey }: { apiKey: Key }) {
  const used = atomic(apiKey.spent_atomic)
  const held = atomic(apiKey.held_atomic)
  if (apiKey.limit_atomic === null) {
    return <span className="text-muted">{formatAmount(used)} spent, no limit</span>
  }
  const limit = atomic(apiKey.limit_atomic)
  const share = (part: bigint) => (limit === 0n ? 100 : Math.min(100, Number((part * 1000n) / limit) / 10))
  return (
    <div className="flex min-w-40 flex-col gap-1">
      <span className="whitespace-nowrap">
        <span className="num">{formatAmount(used)}</span> of <span className="num">{formatAmount(limit)}</span>{' '}
        <span className="text-muted">{windowWords[apiKey.limit_window][1]}</span>
      </span>
      <span className="flex h-1 overflow-hidden rounded-sm bg-rule" aria-hidden="true">
        <span className="bg-ink" style={{ width: `${share(used)}%` }} />
        <span className="bg-held" style={{ width: `${share(held)}%` }} />
      </span>
    </div>
  )
}
