import { useState } from 'react'
import { call } from '../../api/call.ts'
import { useChange } from '../../shell/use-change.ts'
import { FormDialog } from '../../ui/form-dialog.tsx'
import { checkTerms, emptyTerms, ifKeyMade, termsBody } from './key-terms.ts'
import type { IssuedKey } from './secret-dialog.tsx'
import { TermsFields } from './terms-fields.tsx'

type Props = { onClose: () => void; onIssued: (issued: IssuedKey) => void }

export function CreateKeyDialog({ onClose, onIssued }: Props) {
  const [form, setForm] = useState(emptyTerms)
  const [tried, setTried] = useState(false)
  const errors = checkTerms(form, Date.now())
  const create = useChange(async () => {
    const apiKey = await call('createKey', { body: termsBody(form, Date.now()) })
    onIssued({ title: 'Key created', apiKey })
  })
  const submit = () => {
    setTried(true)
    if (Object.keys(errors).length === 0) create.mutate()
  }
  return (
    <FormDialog
      title="Create a key"
      action="Create key"
      change={create}
      onSubmit={submit}
      onClose={onClose}
      ifMade={ifKeyMade}
    >
      <TermsFields form={form} errors={tried ? errors : {}} onChange={setForm} />
    </FormDialog>
  )
}
