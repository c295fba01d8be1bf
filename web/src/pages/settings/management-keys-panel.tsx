import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { call } from '../../api/call.ts'
import { managementKeysQuery } from '../../api/queries.ts'
import type { ManagementKey } from '../../api/shapes.ts'
import { useChange } from '../../shell/use-change.ts'
import { Button } from '../../ui/button.tsx'
import { Checkbox, TextField } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/form-dialog.tsx'
import { Loaded, Skeleton } from '../../ui/loaded.tsx'
import { Panel } from '../../ui/panel.tsx'
import { ShownOnceDialog } from '../../ui/shown-once-dialog.tsx'
import { Time } from '../../ui/time.tsx'
import { ifKeyMade, ifKeyRotated } from '../keys/key-terms.ts'

type Scope = ManagementKey['scopes'][number]

const scopeWords: Readonly<Record<Scope, string>> = {
  'keys:read': 'Read API keys',
  'keys:write': 'Create, change and revoke API keys',
  'usage:read': 'Read usage, requests and balance',
  'webhooks:read': 'Read webhooks',
  'webhooks:write': 'Manage webhooks',
  'log:read': 'Read the account log',
}
const scopes = Object.keys(scopeWords) as Scope[]

/** Keys of programs that manage the account. They cannot spend. */
export function ManagementKeysPanel() {
  const keys = useQuery(managementKeysQuery)
  const [isCreating, setIsCreating] = useState(false)
  const [secret, setSecret] = useState<string>()
  return (
    <Panel
      title="Management keys"
      testId="management-keys"
      actions={
        <Button small icon="plus" onClick={() => setIsCreating(true)}>
          Create
        </Button>
      }
    >
      <p className="mb-3 text-sm text-muted">
        For programs that manage keys and webhooks over{' '}
        <a href="/docs/management-keys" className="link">
          /api
        </a>
        , such as Terraform. They cannot send requests to models.
      </p>
      <Loaded query={keys} skeleton={<Skeleton />}>
        {({ data }) => (
          <ul className="flex flex-col gap-3">
            {data
              .filter(({ status }) => status !== 'revoked')
              .map((key) => (
                <Entry key={key.id} managementKey={key} onSecret={setSecret} />
              ))}
          </ul>
        )}
      </Loaded>
      {isCreating && <CreateDialog onClose={() => setIsCreating(false)} onSecret={setSecret} />}
      {secret !== undefined && (
        <ShownOnceDialog
          title="Management key"
          lead="Copy it now: it is not shown again."
          value={secret}
          whenLost="You would have to rotate the key to get a new secret."
          onClose={() => setSecret(undefined)}
        />
      )}
    </Panel>
  )
}

function Entry({ managementKey, onSecret }: { managementKey: ManagementKey; onSecret: (secret: string) => void }) {
  const { id, name, hint, status, last_used_at: lastUsedAt } = managementKey
  const parameters = { id }
  const [asked, setAsked] = useState<'rotate' | 'revoke'>()
  const close = () => setAsked(undefined)
  const rotate = useChange(async () => {
    const made = await call('rotateManagementKey', { parameters })
    close()
    onSecret(made.secret)
  }, 'Key rotated. The old secret no longer works.')
  const revoke = useChange(async () => {
    await call('revokeManagementKey', { parameters })
    close()
  }, 'Management key revoked.')
  return (
    <li>
      <span className="flex flex-wrap items-start gap-x-4 gap-y-1">
        <span className="min-w-0 flex-1 basis-48">
          <span className="block truncate">
            {name} <span className="num text-sm text-muted">{hint}</span>
            {status === 'expired' && <span className="text-error"> · expired</span>}
          </span>
          <span className="block text-sm text-muted">{managementKey.scopes.join(', ')}</span>
          <span className="block text-sm text-muted">
            {lastUsedAt === null ? (
              'Never used'
            ) : (
              <>
                Last used <Time at={lastUsedAt} show="age" />
              </>
            )}
          </span>
        </span>
        <span className="flex gap-2">
          <Button small variant="quiet" onClick={() => setAsked('rotate')}>
            Rotate<span className="sr-only"> {name}</span>
          </Button>
          <Button small variant="quiet" onClick={() => setAsked('revoke')}>
            Revoke<span className="sr-only"> {name}</span>
          </Button>
        </span>
      </span>
      {asked === 'rotate' && (
        <FormDialog
          title={`Rotate ${name}`}
          action="Rotate key"
          variant="danger"
          change={rotate}
          onClose={close}
          ifMade={ifKeyRotated}
        >
          The key gets a new secret, shown once. The old secret stops working immediately: programs that use it are
          refused until they have the new one.
        </FormDialog>
      )}
      {asked === 'revoke' && (
        <FormDialog
          title={`Revoke ${name}`}
          action="Revoke permanently"
          variant="danger"
          change={revoke}
          onClose={close}
        >
          The key stops working immediately, and programs that use it are refused. A revoked key cannot be restored.
        </FormDialog>
      )}
    </li>
  )
}

function CreateDialog({ onClose, onSecret }: { onClose: () => void; onSecret: (secret: string) => void }) {
  const [name, setName] = useState('')
  const [chosen, setChosen] = useState<readonly Scope[]>(['keys:write'])
  const create = useChange(async () => {
    const made = await call('createManagementKey', { body: { name: name.trim(), scopes: [...chosen] } })
    onClose()
    onSecret(made.secret)
  }, 'Management key created.')
  return (
    <FormDialog
      title="Create a management key"
      action="Create management key"
      change={create}
      disabled={name.trim() === '' || chosen.length === 0}
      onClose={onClose}
      ifMade={ifKeyMade}
    >
      <TextField label="Name" maxLength={200} value={name} onChange={({ target }) => setName(target.value)} />
      <fieldset>
        <legend className="font-medium">Scopes</legend>
        {scopes.map((scope) => (
          <Checkbox
            key={scope}
            label={
              <>
                {scopeWords[scope]} <code className="text-sm text-muted">{scope}</code>
              </>
            }
            checked={chosen.includes(scope)}
            onChange={({ target }) =>
              setChosen(target.checked ? [...chosen, scope] : chosen.filter((other) => other !== scope))
            }
          />
        ))}
      </fieldset>
    </FormDialog>
  )
}
