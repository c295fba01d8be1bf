import { type FormEvent, useState } from 'react'
import { call } from '../../api/call.ts'
import type { Account } from '../../api/shapes.ts'
import { Button } from '../../ui/button.tsx'
import { TextField } from '../../ui/field.tsx'
import { ErrorPanel } from '../../ui/loaded.tsx'
import { Panel } from '../../ui/panel.tsx'
import { useAccountChange } from './account-change.ts'
import { type AlertForm, alertFormOf, alertsBody, alertWords, checkAlerts } from './alert-terms.ts'

/** Below what the overview and the bell warn of a low balance. */
export function AlertsPanel({ account }: { account: Account }) {
  const [form, setForm] = useState(() => alertFormOf(account.alerts))
  const [tried, setTried] = useState(false)
  const errors = checkAlerts(form)
  const save = useAccountChange(
    (next: AlertForm) => call('updateAccount', { body: { alerts: alertsBody(next) } }),
    'Saved.',
  )
  const submit = (event: FormEvent) => {
    event.preventDefault()
    setTried(true)
    if (Object.keys(errors).length === 0) save.mutate(form)
  }
  return (
    <Panel title="Low balance" testId="alerts-settings">
      <p className="mb-3">{alertWords(account.alerts)}</p>
      <form onSubmit={submit} noValidate className="flex flex-col gap-3">
        <div className="grid gap-4 sm:grid-cols-2">
          <TextField
            label="Warn below"
            mono
            inputMode="decimal"
            placeholder="off"
            suffix="USDC"
            value={form.balance}
            error={tried ? errors.balance : undefined}
            onChange={({ target }) => setForm({ ...form, balance: target.value.trim() })}
          />
          <TextField
            label="Warn when less than this remains"
            mono
            inputMode="numeric"
            placeholder="off"
            suffix="days"
            value={form.days}
            error={tried ? errors.days : undefined}
            onChange={({ target }) => setForm({ ...form, days: target.value.trim() })}
          />
        </div>
        <p className="text-sm text-muted">
          Shown on the Overview and in the bell menu. Days are estimated from the last 7 days. Leave a field empty to
          turn that warning off.
        </p>
        <div>
          <Button type="submit" busy={save.isPending}>
            Save
          </Button>
        </div>
      </form>
      {save.error !== null && <ErrorPanel error={save.error} />}
    </Panel>
  )
}
