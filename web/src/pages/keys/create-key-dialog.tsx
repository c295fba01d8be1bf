import { useMutation, useQueryClient } from '@tanstack/react-query'
import { type FormEvent, useState } from 'react'
import { call } from '../../api/call.ts'
import type { KeyWithSecret } from '../../api/shapes.ts'
import { Button } from '../../ui/button.tsx'
import { Dialog } from '../../ui/dialog.tsx'
import { ErrorPanel } from '../../ui/loaded.tsx'
import { checkTerms, emptyTerms, termsBody } from './key-terms.ts'
import { SecretDialog } from './secret-dialog.tsx'
import { TermsFields } from './terms-fields.tsx'

const formId = 'create-key'

export function CreateKeyDialog({ onClose }: { onClose: () => void }) {
  const client = useQueryClient()
  const [form, setForm] = useState(emptyTerms)
  const [tried, setTried] = useState(false)
  const [created, setCreated] = useState<KeyWithSecret>()
  const errors = tried ? checkTerms(form, Date.now()) : {}
  const create = useMutation({
    mutationFn: () => call('createKey', { body: termsBody(form, Date.now()) }),
    onSuccess: (key) => {
      setCreated(key)
      void client.invalidateQueries({ queryKey: ['keys'] })
      void client.invalidateQueries({ queryKey: ['overview'] })
    },
  })
  const submit = (event: FormEvent) => {
    event.preventDefault()
    setTried(true)
    if (Object.keys(checkTerms(form, Date.now())).length === 0) create.mutate()
  }
  if (created !== undefined) return <SecretDialog apiKey={created} title="Key created" onClose={onClose} />
  return (
    <Dialog
      title="Create a key"
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button variant="primary" type="submit" form={formId} busy={create.isPending}>
            Create key
          </Button>
        </>
      }
    >
      <form id={formId} onSubmit={submit} noValidate className="flex flex-col gap-4">
        <TermsFields form={form} errors={errors} onChange={setForm} />
        {create.error !== null && <ErrorPanel error={create.error} />}
      </form>
    </Dialog>
  )
}
