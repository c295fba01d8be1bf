import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { useState } from 'react'
import { call } from '../../api/call.ts'
import type { DeviceLogin } from '../../api/shapes.ts'
import { Page } from '../../shell/page.tsx'
import { Button } from '../../ui/button.tsx'
import { TextField } from '../../ui/field.tsx'
import { Form, useForm } from '../../ui/form.tsx'
import { ErrorPanel, Loaded, Skeleton } from '../../ui/loaded.tsx'
import { Facts, Notice, numeric, Panel } from '../../ui/panel.tsx'
import { Time } from '../../ui/time.tsx'
import { checkTerms, emptyTerms, termsBody } from '../keys/key-terms.ts'
import { TermsFields } from '../keys/terms-fields.tsx'

/** `/device?code=…`: a terminal that ran `penny login` asks for a key. */
export function DevicePage() {
  const { code } = useSearch({ strict: false }) as { code?: string }
  return (
    <Page title="Connect a terminal" lead="Gives the command line of another machine its own API key.">
      <div className="max-w-xl">{code === undefined ? <CodeForm /> : <Login key={code} code={code} />}</div>
    </Page>
  )
}

function CodeForm({ error }: { error?: Error }) {
  const navigate = useNavigate()
  const [typed, setTyped] = useState('')
  const submit = () => {
    if (typed.trim() !== '') void navigate({ to: '/device', search: { code: typed.trim() } as never })
  }
  return (
    <Panel>
      <Form onSubmit={submit}>
        {error !== undefined && <ErrorPanel error={error} />}
        <TextField
          label="Code"
          mono
          placeholder="WDJB-MJHT"
          maxLength={20}
          hint="Shown by penny login in your terminal."
          value={typed}
          onChange={setTyped}
        />
        <div>
          <Button variant="primary" type="submit">
            Continue
          </Button>
        </div>
      </Form>
    </Panel>
  )
}

function Login({ code }: { code: string }) {
  const login = useQuery({
    queryKey: ['device', code],
    queryFn: () => call('GET /api/device/{code}', { parameters: { code } }),
    staleTime: Number.POSITIVE_INFINITY,
  })
  if (login.data === undefined && login.error !== null) return <CodeForm error={login.error} />
  return (
    <Loaded query={login} skeleton={<Skeleton lines={6} height={24} />}>
      {(data) => (data.status === 'pending' ? <Decision login={data} /> : <Decided login={data} />)}
    </Loaded>
  )
}

function Decision({ login }: { login: DeviceLogin }) {
  const client = useQueryClient()
  const terms = useForm({ ...emptyTerms, name: login.machine }, (form) => checkTerms(form, Date.now()))
  const parameters = { code: login.user_code }
  const answer = useMutation({
    mutationFn: (confirmed: boolean) =>
      confirmed
        ? call('POST /api/device/{code}/confirm', { parameters, body: termsBody(terms.fields, Date.now()) })
        : call('POST /api/device/{code}/decline', { parameters }),
  })
  if (answer.data !== undefined) return <Decided login={answer.data} />
  const confirm = () => answer.mutate(true, { onSuccess: () => void client.invalidateQueries({ queryKey: ['keys'] }) })
  return (
    <Panel testId="device-login">
      <Form onSubmit={() => terms.submit(confirm)}>
        <Notice tone="held">
          <strong className="font-medium">Only continue if you started this in your own terminal</strong> and it shows
          the same code. Otherwise the person who sent you this link gets a key that can spend your money.
        </Notice>
        <Facts
          rows={[
            ['Code', <strong key="code">{numeric(login.user_code)}</strong>],
            ['Machine', `${login.machine} (the name it reports)`],
            ['Network', numeric(login.network)],
            ['Started', <Time key="started" at={login.created_at} />],
          ]}
        />
        <TermsFields terms={terms} />
        {answer.error !== null && (
          <ErrorPanel
            error={answer.error}
            ifMade="Your answer may have arrived. Reload the page to see whether the machine is connected."
          />
        )}
        <div className="flex flex-wrap gap-2">
          <Button variant="primary" type="submit" busy={answer.isPending}>
            Create key and connect
          </Button>
          <Button onClick={() => answer.mutate(false)} disabled={answer.isPending}>
            Decline
          </Button>
        </div>
      </Form>
    </Panel>
  )
}

function Decided({ login }: { login: DeviceLogin }) {
  return (
    <Notice role="status" tone={login.status === 'confirmed' ? 'accent' : 'plain'}>
      {login.status === 'confirmed' ? (
        <p>
          Confirmed. {login.machine} receives its key within seconds. Go back to your terminal. You can change or revoke
          the key under{' '}
          <Link to="/keys" className="text-link underline">
            Keys
          </Link>
          .
        </p>
      ) : (
        <p>Declined. No key was created.</p>
      )}
    </Notice>
  )
}
