import { useMutation, useQueryClient } from '@tanstack/react-query'
import { type FormEvent, useState } from 'react'
import { call } from '../../api/call.ts'
import { Button } from '../../ui/button.tsx'
import { Dialog } from '../../ui/dialog.tsx'
import { ErrorPanel } from '../../ui/loaded.tsx'
import { checkTerms, emptyTerms, ifKeyMade, termsBody } from './key-terms.ts'
import type { IssuedKey } from './secret-dialog.tsx'
import { TermsFields } from './terms-fields.tsx'

const formId = 'create-key'

type Props = { onClose: () => void; onIssued: (issued: IssuedKey) => void }

export function CreateKeyDialog({ onClose, onIssued }: Props) {
  const client = useQueryClient()
  const [form, setForm] = useState(emptyTerms)
  const [tried, setTried] = useState(false)
  const errors = tried ? checkTerms(form, Date.now()) : {}
  const create = useMutation({
    mutationFn: () => call('createKey', { body: termsBody(form, Date.now()) }),
    onSuccess: (apiKey) => onIssued({ title: 'Key created', apiKey }),
    // Also after an error: the answer may have been lost after the key was created.
    onSettled: () => {
      void client.invalidateQueries({ queryKey: ['keys'] })
      void client.invalidateQueries({ queryKey: ['overview'] })
    },
  })
  const submit = (event: FormEvent) => {
    event.preventDefault()
    setTried(true)
    if (Object.keys(checkTerms(form, Date.now())).length === 0) create.mutate()
  }
  return (
    <Dialog
      title="Create a key"
      onClose={onClose}
      busy={create.isPending}
      footer={
        <>
          <Button onClick={onClose} disabled={create.isPending}>
            Cancel
          </Button>
          <Button variant="primary" type="submit" form={formId} busy={create.isPending}>
            Create key
          </Button>
        </>
      }
    >
      <form id={formId} onSubmit={submit} noValidate className="flex flex-col gap-4">
        <TermsFields form={form} errors={errors} onChange={setForm} />
        {create.error !== null && <ErrorPanel error={create.error} ifMade={ifKeyMade} />}
      </form>
    </Dialog>
  )
}
