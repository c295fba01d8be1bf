import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { call } from '../../api/call.ts'
import { alertEmailQuery, alertRulesQuery } from '../../api/queries.ts'
import type { AlertEmail, AlertRule } from '../../api/shapes.ts'
import { useChange } from '../../shell/use-change.ts'
import { Button } from '../../ui/button.tsx'
import { Checkbox, TextField } from '../../ui/field.tsx'
import { Form } from '../../ui/form.tsx'
import { ErrorPanel, Loaded, Skeleton } from '../../ui/loaded.tsx'
import { Panel } from '../../ui/panel.tsx'
import { type RuleForm, ruleBody, ruleFormOf, ruleProblem, ruleWords } from './alert-terms.ts'

/** The alert rules, and the address that alerts are mailed to. */
export function AlertsPanel() {
  const rules = useQuery(alertRulesQuery)
  const email = useQuery(alertEmailQuery)
  return (
    <Panel title="Alerts" testId="alerts">
      <p className="mb-3 text-sm text-muted">
        Shown on the Overview and in the bell menu, and sent to webhooks{email.data?.available && ' and by e-mail'}.{' '}
        <a href="/docs/alerts" className="link">
          When each one fires
        </a>
        .
      </p>
      <Loaded query={rules} skeleton={<Skeleton lines={6} />}>
        {({ data }) => <Rules rules={data} />}
      </Loaded>
      <Loaded query={email}>{(data) => <Email email={data} />}</Loaded>
    </Panel>
  )
}

function Rules({ rules }: { rules: readonly AlertRule[] }) {
  const client = useQueryClient()
  // Only edited fields: the others keep the service's values, also when another window changes them.
  const [edits, setEdits] = useState<Readonly<Record<string, RuleForm>>>({})
  const formOf = (rule: AlertRule) => edits[rule.kind] ?? ruleFormOf(rule)
  const [tried, setTried] = useState(false)
  const problemOf = (rule: AlertRule) => ruleProblem(rule, formOf(rule))
  const save = useChange(async () => {
    for (const rule of rules) {
      const body = ruleBody(rule, formOf(rule))
      if (body !== undefined) await call('PUT /api/alerts/rules/{kind}', { parameters: { kind: rule.kind }, body })
    }
    await client.invalidateQueries({ queryKey: alertRulesQuery.queryKey })
    // Input since then is not saved yet.
    setEdits((latest) => Object.fromEntries(Object.entries(latest).filter(([kind, form]) => form !== edits[kind])))
  }, 'Saved.')
  const submit = () => {
    setTried(true)
    if (rules.every((rule) => problemOf(rule) === undefined)) save.mutate()
  }
  return (
    <Form onSubmit={submit} className="flex flex-col gap-3">
      {rules.map((rule) => {
        const { kind, unit } = rule
        const form = formOf(rule)
        const [label, suffix] = ruleWords[kind]
        const change = (next: Partial<RuleForm>) => setEdits({ ...edits, [kind]: { ...form, ...next } })
        return (
          <fieldset key={kind} className="grid min-w-0 grid-cols-1 items-end gap-x-4 sm:grid-cols-[1fr_160px]">
            <legend className="sr-only">{label}</legend>
            <Checkbox label={label} checked={form.enabled} onChange={(enabled) => change({ enabled })} />
            {unit !== 'none' && (
              <TextField
                label="Threshold"
                amount
                suffix={suffix}
                disabled={!form.enabled}
                value={form.threshold}
                error={tried ? problemOf(rule) : undefined}
                onChange={(threshold) => change({ threshold })}
              />
            )}
          </fieldset>
        )
      })}
      <div>
        <Button type="submit" busy={save.isPending}>
          Save alerts
        </Button>
      </div>
      {save.error !== null && <ErrorPanel error={save.error} />}
    </Form>
  )
}

function Email({ email }: { email: AlertEmail }) {
  const [address, setAddress] = useState('')
  const set = useChange(() => call('PUT /api/alerts/email', { body: { address } }), 'Link sent.')
  const remove = useChange(() => call('DELETE /api/alerts/email'), 'Address removed.')
  const verify = useChange(
    (token: string) => call('POST /api/alerts/email/verify', { body: { token } }),
    'Address confirmed. Alerts are mailed to it.',
  )
  useVerifyLink(verify.mutate)
  const error = set.error ?? remove.error ?? verify.error
  if (!email.available && email.address === null) return null
  return (
    <section className="mt-4 border-t border-rule pt-3" data-testid="alert-email">
      {email.address !== null && (
        <p className="flex flex-wrap items-center justify-between gap-2">
          <span>
            {email.address}{' '}
            <span className="text-sm text-muted">
              {email.verified_at === null ? 'Open the link that we sent to it.' : 'gets alerts'}
            </span>
          </span>
          <Button small variant="quiet" change={remove}>
            Remove<span className="sr-only"> {email.address}</span>
          </Button>
        </p>
      )}
      {email.available && email.address === null && (
        <Form onSubmit={set.mutate} noValidate={false} className="flex items-end gap-2">
          <div className="flex-1">
            <TextField
              label="E-mail for alerts"
              type="email"
              autoComplete="email"
              required
              value={address}
              trimmed
              onChange={setAddress}
            />
          </div>
          <Button type="submit" disabled={address === ''} busy={set.isPending}>
            Send link
          </Button>
        </Form>
      )}
      {error !== null && <ErrorPanel error={error} />}
    </section>
  )
}

/** The link of the mail leads here. Its token is used once and taken out of the address. */
function useVerifyLink(verify: (token: string) => void): void {
  const navigate = useNavigate()
  const { 'verify-email': token } = useSearch({ strict: false }) as { 'verify-email'?: string }
  useEffect(() => {
    if (token === undefined) return
    void navigate({ to: '/settings', search: {} as never, hash: 'alerts', replace: true })
    verify(token)
  }, [token, navigate, verify])
}
