import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { call } from '../../api/call.ts'
import { keyQuery, sessionQuery } from '../../api/queries.ts'
import { useRole } from '../../api/session.ts'
import type { Key, KeyWithSecret } from '../../api/shapes.ts'
import { ChangeDialog } from '../../shell/change-dialog.tsx'
import { useChange } from '../../shell/use-change.ts'
import { firstCall } from '../../snippets/code.ts'
import { SnippetTabs } from '../../snippets/snippet-tabs.tsx'
import { Button } from '../../ui/button.tsx'
import { download } from '../../ui/csv.ts'
import { Dialog } from '../../ui/dialog.tsx'
import { SelectField } from '../../ui/field.tsx'
import { useForm } from '../../ui/form.tsx'
import { Icon } from '../../ui/icon.tsx'
import { ErrorPanel } from '../../ui/loaded.tsx'
import { menuItemClass, Popover } from '../../ui/menu.tsx'
import { ShownOnceDialog } from '../../ui/shown-once-dialog.tsx'
import { RequestList } from '../requests/request-list.tsx'
import {
  checkTerms,
  emptyTerms,
  ifKeyMade,
  ifKeyRotated,
  type Overlap,
  overlaps,
  termsBody,
  termsChanges,
  termsOf,
} from './key-terms.ts'
import { TermsFields } from './terms-fields.tsx'

type Action = 'edit' | 'rotate' | 'revoke'

/** Actions that the role allows. None for a revoked key; the wallet's own key cannot be rotated or revoked. */
export function KeyActions({ apiKey, onIssued }: { apiKey: Key; onIssued: (issued: IssuedKey) => void }) {
  const [action, setAction] = useState<Action>()
  const mayChange = useRole('developer')
  const disable = useChange(
    async (disabled: boolean) => {
      await call('PATCH /api/keys/{id}', { parameters: { id: apiKey.id }, body: { disabled } })
      return disabled
    },
    (disabled) => (disabled ? 'Key disabled.' : 'Key enabled.'),
  )
  if (apiKey.status === 'revoked' || !mayChange) return null
  const close = () => setAction(undefined)
  const isDisabled = apiKey.status === 'disabled'
  const items = [
    ['settings', 'Edit', () => setAction('edit')],
    ['refunded', 'Rotate', () => setAction('rotate')],
    ['cross', 'Revoke', () => setAction('revoke')],
    ['stopped', isDisabled ? 'Enable' : 'Disable', () => disable.mutate(!isDisabled)],
  ] as const
  return (
    <>
      <Popover
        label={`Actions for ${apiKey.name}`}
        align="right"
        buttonClassName="inline-flex size-8 items-center justify-center rounded-md text-muted hover:bg-sunken hover:text-ink"
        button={<Icon name="dots" />}
      >
        {(closeMenu) => (
          <div className="flex flex-col">
            {items
              .filter(([icon]) => !apiKey.is_x402 || icon === 'settings' || icon === 'stopped')
              .map(([icon, label, act]) => (
                <button
                  key={icon}
                  type="button"
                  className={menuItemClass}
                  onClick={() => {
                    closeMenu()
                    act()
                  }}
                >
                  <Icon name={icon} /> {label}
                </button>
              ))}
          </div>
        )}
      </Popover>
      {disable.error !== null && (
        <Dialog title="The key may not have been changed" onClose={disable.reset}>
          <ErrorPanel error={disable.error} />
          <p className="mt-3">Check its status in the list before you try again.</p>
        </Dialog>
      )}
      {action === 'edit' && <EditDialog apiKey={apiKey} onClose={close} />}
      {action === 'rotate' && <RotateDialog apiKey={apiKey} onClose={close} onIssued={onIssued} />}
      {action === 'revoke' && <RevokeDialog apiKey={apiKey} onClose={close} />}
    </>
  )
}

type Props = { apiKey: Key; onClose: () => void }
type IssueProps = { onClose: () => void; onIssued: (issued: IssuedKey) => void }

export function CreateKeyDialog({ onClose, onIssued }: IssueProps) {
  const terms = useForm(emptyTerms, (form) => checkTerms(form, Date.now()))
  return (
    <ChangeDialog
      title="Create a key"
      action="Create key"
      make={() => call('POST /api/keys', { body: termsBody(terms.fields, Date.now()) })}
      submit={terms.submit}
      onMade={(apiKey) => onIssued({ title: 'Key created', apiKey })}
      // Its address stays until the secret was seen: Back must not lead to the form again.
      staysOpen
      onClose={onClose}
      ifMade={ifKeyMade}
    >
      <TermsFields terms={terms} />
    </ChangeDialog>
  )
}

function EditDialog({ apiKey, onClose }: Props) {
  const [opened] = useState(() => termsOf(apiKey))
  const terms = useForm(opened, (form) => checkTerms(form, Date.now()))
  const save = async () => {
    const body = termsChanges(terms.fields, opened, Date.now())
    if (Object.keys(body).length > 0) await call('PATCH /api/keys/{id}', { parameters: { id: apiKey.id }, body })
  }
  return (
    <ChangeDialog
      title={`Edit ${apiKey.name}`}
      action="Save"
      make={save}
      said="Saved."
      submit={terms.submit}
      onClose={onClose}
    >
      <TermsFields terms={terms} expiresAt={apiKey.expires_at} />
      <p className="text-sm text-muted">Changes apply to the next request.</p>
    </ChangeDialog>
  )
}

function RotateDialog({ apiKey, onClose, onIssued }: Props & IssueProps) {
  const { fields, field } = useForm<{ overlap: Overlap }>({ overlap: '0' })
  const body = { overlap_seconds: Number(fields.overlap) }
  return (
    <ChangeDialog
      title={`Rotate ${apiKey.name}`}
      action="Rotate key"
      make={() => call('POST /api/keys/{id}/rotate', { parameters: { id: apiKey.id }, body })}
      onMade={(rotated) => onIssued({ title: 'Key rotated', apiKey: rotated })}
      onClose={onClose}
      ifMade={ifKeyRotated}
    >
      <p>The key gets a new secret, shown once. Its limit, spend and log stay the same.</p>
      <SelectField label="Old secret stops working" options={overlaps} {...field('overlap')} />
    </ChangeDialog>
  )
}

function RevokeDialog({ apiKey, onClose }: Props) {
  const { data } = useQuery(keyQuery(apiKey.id))
  return (
    <ChangeDialog
      wide
      title={`Revoke ${apiKey.name}`}
      action="Revoke permanently"
      variant="danger"
      make={() => call('DELETE /api/keys/{id}', { parameters: { id: apiKey.id } })}
      said="Key revoked."
      typed={{ label: 'Type the key’s name', name: apiKey.name }}
      onClose={onClose}
    >
      <p>The key stops working immediately. Requests already running may finish and are charged.</p>
      <section>
        <h3 className="mb-1 text-sm text-muted">Latest requests</h3>
        {data?.recent.length === 0 && <p className="text-muted">This key was never used.</p>}
        <RequestList requests={(data?.recent ?? []).slice(0, 5)} />
      </section>
    </ChangeDialog>
  )
}

/** A key that was created or rotated. The page keeps it until its secret was seen: dialogs and rows come and go. */
export type IssuedKey = { readonly title: 'Key created' | 'Key rotated'; readonly apiKey: KeyWithSecret }

/** The one time that a secret is seen. */
export function SecretDialog({ issued: { title, apiKey }, onClose }: { issued: IssuedKey; onClose: () => void }) {
  const { data: session } = useQuery(sessionQuery)
  const downloadEnv = () => {
    const baseUrl = session?.base_url ?? `${window.location.origin}/v1`
    download('.env', 'text/plain', `OPENAI_BASE_URL=${baseUrl}\nOPENAI_API_KEY=${apiKey.secret}\n`)
  }
  return (
    <ShownOnceDialog
      wide
      title={title}
      lead={
        <>
          This is the secret of <strong className="font-medium">{apiKey.name}</strong>. Copy it now: we store only a
          hash and cannot show it again.
        </>
      }
      value={apiKey.secret}
      copyLabel="Copy key"
      whenLost="You would have to rotate the key to get a new secret."
      otherWay={(onKept) => (
        <Button
          icon="download"
          onClick={() => {
            downloadEnv()
            onKept()
          }}
        >
          Download .env
        </Button>
      )}
      onClose={onClose}
    >
      {session !== undefined && <SnippetTabs call={firstCall(session, apiKey.secret)} />}
    </ShownOnceDialog>
  )
}
