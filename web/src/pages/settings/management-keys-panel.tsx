import { useQuery } from '@tanstack/react-query'
import { call } from '../../api/call.ts'
import { managementKeysQuery } from '../../api/queries.ts'
import type { ManagementKey } from '../../api/shapes.ts'
import { ChangeDialog, ConfirmButton, DialogButton } from '../../shell/change-dialog.tsx'
import { Item, ResourcePanel } from '../../shell/resource-panel.tsx'
import { Checkboxes, TextField } from '../../ui/field.tsx'
import { useForm } from '../../ui/form.tsx'
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
const scopes = Object.entries(scopeWords) as [Scope, string][]

/** Keys of programs that manage the account. They cannot spend. */
export function ManagementKeysPanel() {
  const keys = useQuery({
    ...managementKeysQuery,
    select: ({ data }) => ({ data: data.filter(({ status }) => status !== 'revoked') }),
  })
  return (
    <ResourcePanel
      title="Management keys"
      testId="management-keys"
      about={
        <>
          For programs that manage keys and webhooks over{' '}
          <a href="/docs/management-keys" className="link">
            /api
          </a>
          , such as Terraform. They cannot send requests to models.
        </>
      }
      query={keys}
      actions={(show) => (
        <DialogButton small icon="plus" dialog={(close) => <CreateDialog onClose={close} onSecret={show} />}>
          Create
        </DialogButton>
      )}
      item={(key, show) => <Entry key={key.id} managementKey={key} onSecret={show} />}
      secret={{
        title: 'Management key',
        lead: 'Copy it now: it is not shown again.',
        whenLost: 'You would have to rotate the key to get a new secret.',
      }}
    />
  )
}

function Entry({ managementKey, onSecret }: { managementKey: ManagementKey; onSecret: (secret: string) => void }) {
  const { id, name, hint, status, last_used_at: lastUsedAt } = managementKey
  const parameters = { id }
  return (
    <Item
      name={
        <>
          {name} <span className="num text-sm text-muted">{hint}</span>
          {status === 'expired' && <span className="text-error"> · expired</span>}
        </>
      }
      notes={[
        managementKey.scopes.join(', '),
        lastUsedAt === null ? (
          'Never used'
        ) : (
          <>
            Last used <Time at={lastUsedAt} show="age" />
          </>
        ),
      ]}
      actions={
        <>
          <ConfirmButton
            label="Rotate"
            name={name}
            title={`Rotate ${name}`}
            action="Rotate key"
            make={() => call('POST /api/management-keys/{id}/rotate', { parameters })}
            said="Key rotated. The old secret no longer works."
            onMade={({ secret }) => onSecret(secret)}
            ifMade={ifKeyRotated}
          >
            The key gets a new secret, shown once. The old secret stops working immediately: programs that use it are
            refused until they have the new one.
          </ConfirmButton>
          <ConfirmButton
            label="Revoke"
            name={name}
            title={`Revoke ${name}`}
            action="Revoke permanently"
            make={() => call('DELETE /api/management-keys/{id}', { parameters })}
            said="Management key revoked."
          >
            The key stops working immediately, and programs that use it are refused. A revoked key cannot be restored.
          </ConfirmButton>
        </>
      }
    />
  )
}

function CreateDialog({ onClose, onSecret }: { onClose: () => void; onSecret: (secret: string) => void }) {
  const { fields, field } = useForm<{ name: string; scopes: readonly Scope[] }>({ name: '', scopes: ['keys:write'] })
  const body = { name: fields.name.trim(), scopes: [...fields.scopes] }
  return (
    <ChangeDialog
      title="Create a management key"
      action="Create management key"
      make={() => call('POST /api/management-keys', { body })}
      said="Management key created."
      onMade={({ secret }) => onSecret(secret)}
      disabled={body.name === '' || body.scopes.length === 0}
      onClose={onClose}
      ifMade={ifKeyMade}
    >
      <TextField label="Name" maxLength={200} {...field('name')} />
      <Checkboxes legend="Scopes" all={scopes} hasCodes {...field('scopes')} />
    </ChangeDialog>
  )
}
