import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import { call } from '../../api/call.ts'
import { keysQuery } from '../../api/queries.ts'
import { hasRole } from '../../api/session.ts'
import type { KeyWithSecret, Overview, Session } from '../../api/shapes.ts'
import { useFaucet } from '../../shell/sandbox-bar.tsx'
import { useChange } from '../../shell/use-change.ts'
import { firstCall } from '../../snippets/code.ts'
import { SnippetTabs } from '../../snippets/snippet-tabs.tsx'
import { Button } from '../../ui/button.tsx'
import { classNames } from '../../ui/class-names.ts'
import { CopyableId } from '../../ui/copy.tsx'
import { TextField } from '../../ui/field.tsx'
import { Form } from '../../ui/form.tsx'
import { Icon } from '../../ui/icon.tsx'
import { ErrorPanel } from '../../ui/loaded.tsx'
import { Panel } from '../../ui/panel.tsx'
import { ifKeyMade } from '../keys/key-terms.ts'
import { Listener } from './listener.tsx'

type Props = { session: Session; overview: Overview; done: boolean; onDismiss: () => void }

/** From nothing to the first paid answer, in three steps. */
export function Checklist({ session, overview: { checklist }, done, onDismiss }: Props) {
  const [created, setCreated] = useState<KeyWithSecret>()
  return (
    <Panel
      testId="checklist"
      title={done ? 'All set' : 'Get started'}
      flush
      actions={
        <Button small variant="quiet" onClick={onDismiss}>
          {done ? 'Close' : 'Dismiss'}
        </Button>
      }
    >
      <ol>
        <Step number={1} done={checklist.funded} title="Fund the account">
          <Fund session={session} funded={checklist.funded} />
        </Step>
        <Step number={2} done={checklist.key_created || created !== undefined} title="Create a key">
          {!hasRole(session, 'developer') ? (
            <p className="text-muted">Developers, admins and owners of the account can create keys.</p>
          ) : created === undefined ? (
            <CreateKey onCreated={setCreated} />
          ) : (
            <Created apiKey={created} />
          )}
        </Step>
        <Step number={3} done={checklist.request_sent} title="Send a request">
          <SendRequest session={session} created={created} />
        </Step>
      </ol>
    </Panel>
  )
}

type StepProps = { number: number; done: boolean; title: string; children: ReactNode }

function Step({ number, done, title, children }: StepProps) {
  return (
    <li className="grid grid-cols-[24px_1fr] gap-x-3 border-b border-rule p-4 last:border-b-0">
      <span
        aria-hidden="true"
        className={classNames(
          'num grid size-6 place-items-center rounded-full border text-sm',
          done ? 'border-accent bg-accent-wash text-accent' : 'border-edge text-muted',
        )}
      >
        {done ? <Icon name="check" size={14} /> : number}
      </span>
      <div className="flex min-w-0 flex-col gap-3">
        <h3 className="pt-0.5">
          {title}
          {done && <span className="sr-only"> (done)</span>}
        </h3>
        {children}
      </div>
    </li>
  )
}

function Fund({ session, funded }: { session: Session; funded: boolean }) {
  const faucet = useFaucet()
  if (session.account?.x402_wallet != null) return <p className="text-muted">Your wallet pays over x402.</p>
  if (!session.features.faucet) {
    return (
      <p className="text-muted">
        {funded ? 'Your account is funded. ' : 'Send USDC to your deposit address. '}
        <Link to="/funds" className="link">
          Deposit
        </Link>
      </p>
    )
  }
  return (
    <div className="flex flex-wrap items-center gap-3">
      <Button variant={funded ? 'secondary' : 'primary'} change={faucet}>
        Get 25 test USDC
      </Button>
      <p className="text-muted" role="status">
        {faucet.error?.message ?? faucet.data ?? 'Credited within seconds; the balance updates automatically.'}
      </p>
    </div>
  )
}

function CreateKey({ onCreated }: { onCreated: (key: KeyWithSecret) => void }) {
  const [name, setName] = useState('First key')
  const create = useChange(
    async () => onCreated(await call('POST /api/keys', { body: { name: name.trim() } })),
    'Key created.',
  )
  return (
    <Form onSubmit={create.mutate} className="flex flex-wrap items-end gap-2">
      <div className="w-64">
        <TextField label="Name" required maxLength={200} value={name} onChange={setName} />
      </div>
      <Button type="submit" busy={create.isPending} disabled={name.trim() === ''}>
        Create key
      </Button>
      {create.error !== null && <ErrorPanel error={create.error} ifMade={ifKeyMade} />}
    </Form>
  )
}

function Created({ apiKey }: { apiKey: KeyWithSecret }) {
  return (
    <div data-testid="secret-once" className="flex flex-col gap-1">
      <CopyableId id={apiKey.secret} label="key" />
      <p className="text-sm text-muted">
        Copy it before you leave this page: it cannot be shown again. The code below contains it.
      </p>
    </div>
  )
}

function SendRequest({ session, created }: { session: Session; created: KeyWithSecret | undefined }) {
  const { data: keys } = useQuery(keysQuery)
  const active = keys?.data.find(({ status, is_x402 }) => status === 'active' && !is_x402)
  const shown = created?.secret ?? active?.hint ?? 'penny_…'
  return (
    <>
      <SnippetTabs call={firstCall(session, shown)} />
      {created === undefined && active !== undefined && (
        <p className="text-sm text-muted">
          {active.hint} is {active.name}; replace it with the full key, which was shown when you created it.
        </p>
      )}
      <Listener session={session} keyId={created?.id ?? active?.id} />
    </>
  )
}
