import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { call } from '../../api/call.ts'
import { keyQuery } from '../../api/queries.ts'
import type { Key } from '../../api/shapes.ts'
import { useRole } from '../../api/use-role.ts'
import { useChange } from '../../shell/use-change.ts'
import { Dialog } from '../../ui/dialog.tsx'
import { SelectField, TextField } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/form-dialog.tsx'
import { Icon } from '../../ui/icon.tsx'
import { ErrorPanel } from '../../ui/loaded.tsx'
import { menuItemClass, Popover } from '../../ui/menu.tsx'
import { isSameName } from '../../ui/same-name.ts'
import { RequestList } from '../requests/request-list.tsx'
import { checkTerms, ifKeyRotated, overlaps, termsChanges, termsOf } from './key-terms.ts'
import type { IssuedKey } from './secret-dialog.tsx'
import { TermsFields } from './terms-fields.tsx'

type Action = 'edit' | 'rotate' | 'revoke'

/** Actions that the role allows. None for a revoked key; the wallet's own key cannot be rotated or revoked. */
export function KeyActions({ apiKey, onIssued }: { apiKey: Key; onIssued: (issued: IssuedKey) => void }) {
  const [action, setAction] = useState<Action>()
  const mayChange = useRole('developer')
  const disable = useChange(
    async (disabled: boolean) => {
      await call('updateKey', { parameters: { id: apiKey.id }, body: { disabled } })
      return disabled
    },
    (disabled) => (disabled ? 'Key disabled.' : 'Key enabled.'),
  )
  if (apiKey.status === 'revoked' || !mayChange) return null
  const close = () => setAction(undefined)
  const items = [
    ['edit', 'settings', 'Edit'],
    ['rotate', 'refunded', 'Rotate'],
    ['revoke', 'cross', 'Revoke'],
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
            {(apiKey.is_x402 ? items.slice(0, 1) : items).map(([name, icon, label]) => (
              <button
                key={name}
                type="button"
                className={menuItemClass}
                onClick={() => {
                  closeMenu()
                  setAction(name)
                }}
              >
                <Icon name={icon} /> {label}
              </button>
            ))}
            <button
              type="button"
              className={menuItemClass}
              onClick={() => {
                closeMenu()
                disable.mutate(apiKey.status !== 'disabled')
              }}
            >
              <Icon name="stopped" /> {apiKey.status === 'disabled' ? 'Enable' : 'Disable'}
            </button>
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

function EditDialog({ apiKey, onClose }: { apiKey: Key; onClose: () => void }) {
  const [opened] = useState(() => termsOf(apiKey))
  const [form, setForm] = useState(opened)
  const errors = checkTerms(form, Date.now())
  const save = useChange(async () => {
    const body = termsChanges(form, opened, Date.now())
    if (Object.keys(body).length > 0) await call('updateKey', { parameters: { id: apiKey.id }, body })
    onClose()
  }, 'Saved.')
  const submit = () => {
    if (Object.keys(errors).length === 0) save.mutate()
  }
  return (
    <FormDialog title={`Edit ${apiKey.name}`} action="Save" change={save} onSubmit={submit} onClose={onClose}>
      <TermsFields form={form} errors={errors} onChange={setForm} expiresAt={apiKey.expires_at} />
      <p className="text-sm text-muted">Changes apply to the next request.</p>
    </FormDialog>
  )
}

type RotateProps = { apiKey: Key; onClose: () => void; onIssued: (issued: IssuedKey) => void }

function RotateDialog({ apiKey, onClose, onIssued }: RotateProps) {
  const [overlap, setOverlap] = useState('0')
  const rotate = useChange(async () => {
    const body = { overlap_seconds: Number(overlap) }
    const rotated = await call('rotateKey', { parameters: { id: apiKey.id }, body })
    onClose()
    onIssued({ title: 'Key rotated', apiKey: rotated })
  })
  return (
    <FormDialog
      title={`Rotate ${apiKey.name}`}
      action="Rotate key"
      change={rotate}
      onClose={onClose}
      ifMade={ifKeyRotated}
    >
      <p>The key gets a new secret, shown once. Its limit, spend and log stay the same.</p>
      <SelectField label="Old secret stops working" value={overlap} onChange={({ target }) => setOverlap(target.value)}>
        {overlaps.map(([value, words]) => (
          <option key={value} value={value}>
            {words}
          </option>
        ))}
      </SelectField>
    </FormDialog>
  )
}

function RevokeDialog({ apiKey, onClose }: { apiKey: Key; onClose: () => void }) {
  const { data } = useQuery(keyQuery(apiKey.id))
  const [typed, setTyped] = useState('')
  const revoke = useChange(async () => {
    await call('revokeKey', { parameters: { id: apiKey.id } })
    onClose()
  }, 'Key revoked.')
  return (
    <FormDialog
      wide
      title={`Revoke ${apiKey.name}`}
      action="Revoke permanently"
      variant="danger"
      change={revoke}
      disabled={!isSameName(typed, apiKey.name)}
      onClose={onClose}
    >
      <p>The key stops working immediately. Requests already running may finish and are charged.</p>
      <section>
        <h3 className="mb-1 text-sm text-muted">Latest requests</h3>
        {data?.recent.length === 0 && <p className="text-muted">This key was never used.</p>}
        <RequestList requests={(data?.recent ?? []).slice(0, 5)} />
      </section>
      <TextField
        label={`Type the key’s name, ${apiKey.name}`}
        value={typed}
        onChange={({ target }) => setTyped(target.value)}
      />
    </FormDialog>
  )
}
