import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { useState } from 'react'
import { keysQuery } from '../../api/queries.ts'
import type { Key } from '../../api/shapes.ts'
import { useRole } from '../../api/use-role.ts'
import { Page } from '../../shell/page.tsx'
import { Button } from '../../ui/button.tsx'
import { classNames } from '../../ui/class-names.ts'
import { Loaded, Skeleton } from '../../ui/loaded.tsx'
import { useNarrow } from '../../ui/media.ts'
import { EmptyState, Panel } from '../../ui/panel.tsx'
import { StateMark } from '../../ui/state-mark.tsx'
import { Time } from '../../ui/time.tsx'
import { CreateKeyDialog } from './create-key-dialog.tsx'
import { KeyActions } from './key-actions.tsx'
import { restrictionsOf } from './key-terms.ts'
import { LimitBar } from './limit-bar.tsx'
import { type IssuedKey, SecretDialog } from './secret-dialog.tsx'

export function KeysPage() {
  const keys = useQuery(keysQuery)
  const navigate = useNavigate()
  const narrow = useNarrow()
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
        <Loaded
          query={keys}
          skeleton={
            <div className="p-4">
              <Skeleton lines={5} height={24} />
            </div>
          }
        >
          {({ data }) =>
            data.length === 0 ? (
              <EmptyState title="No keys yet" action={button}>
                A key lets an application spend from this account. Give each application its own key with a limit, so
                you know the most it can cost you.
                {!mayCreate && ' Developers, admins and owners of the account can create keys.'}
              </EmptyState>
            ) : narrow ? (
              <KeyItems keys={data} onIssued={setIssued} />
            ) : (
              <KeyTable keys={data} onIssued={setIssued} />
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

const heads = ['Name', 'Key', 'Spend', 'Expires', 'Last used', 'Created', 'Status', '']
/** Hidden on narrow screens; shown on the key's page. */
const wideOnly = 'max-xl:hidden'

type ListProps = { keys: readonly Key[]; onIssued: (issued: IssuedKey) => void }

function KeyTable({ keys, onIssued }: ListProps) {
  return (
    <table className="w-full border-collapse text-left">
      <caption className="sr-only">API keys, newest first</caption>
      <thead>
        <tr className="border-b border-rule text-sm text-muted">
          {heads.map((head) => (
            <th
              key={head}
              scope="col"
              className={classNames(
                'px-3 py-2 font-normal whitespace-nowrap first:pl-4',
                ['Key', 'Last used', 'Created'].includes(head) && wideOnly,
              )}
            >
              {head === '' ? <span className="sr-only">Actions</span> : head}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {keys.map((key) => (
          <tr key={key.id} data-testid="key-row" className="border-b border-rule last:border-b-0">
            <td className="max-w-48 px-3 py-2.5 pl-4">
              <span className="block truncate">
                <KeyName apiKey={key} />
              </span>
              <Restrictions apiKey={key} />
            </td>
            <td className={`num px-3 whitespace-nowrap text-muted ${wideOnly}`}>
              {key.is_x402 ? 'the wallet' : key.hint}
            </td>
            <td className="px-3">
              <LimitBar apiKey={key} />
            </td>
            <td className="px-3">{key.expires_at === null ? 'Never' : <Time at={key.expires_at} show="day" />}</td>
            <td className={`px-3 ${wideOnly}`}>
              {key.last_used_at === null ? 'Never' : <Time at={key.last_used_at} show="age" />}
            </td>
            <td className={`px-3 ${wideOnly}`}>
              <Time at={key.created_at} show="day" />
            </td>
            <td className="px-3">
              <KeyMark status={key.status} />
            </td>
            <td className="px-2 text-right">
              <KeyActions apiKey={key} onIssued={onIssued} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  )
}

function KeyItems({ keys, onIssued }: ListProps) {
  return (
    <ul>
      {keys.map((key) => (
        <li
          key={key.id}
          data-testid="key-row"
          className="grid grid-cols-[1fr_auto] gap-x-4 gap-y-1 border-b border-rule p-4 last:border-b-0"
        >
          <span className="flex min-w-0 items-baseline gap-2">
            <KeyName apiKey={key} />
            <span className="num text-sm text-muted">{key.is_x402 ? 'the wallet' : key.hint}</span>
          </span>
          <span className="row-span-2 flex items-start gap-1">
            <KeyMark status={key.status} />
            <span className="-my-1.5">
              <KeyActions apiKey={key} onIssued={onIssued} />
            </span>
          </span>
          <LimitBar apiKey={key} />
          <Restrictions apiKey={key} />
        </li>
      ))}
    </ul>
  )
}

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
  return <span className="block text-sm text-muted">{words.join(', ')}</span>
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
