import { type UseQueryResult, useQuery } from '@tanstack/react-query'
import { Link, useSearch } from '@tanstack/react-router'
import { useCallback, useState } from 'react'
import { keysQuery, modelsQuery, sessionQuery } from '../../api/queries.ts'
import type { Key, Model, Session } from '../../api/shapes.ts'
import { Page } from '../../shell/page.tsx'
import { SnippetTabs } from '../../snippets/snippet-tabs.tsx'
import { Button, buttonClass } from '../../ui/button.tsx'
import { Checkbox, SelectField, TextArea, TextField } from '../../ui/field.tsx'
import { Loaded, Skeleton } from '../../ui/loaded.tsx'
import { EmptyState, Panel } from '../../ui/panel.tsx'
import { worstOf } from '../../ui/worst-of.ts'
import { bodyOf, emptyForm, formProblem, type PlaygroundBody, type PlaygroundForm } from './playground-form.ts'
import { QuoteLine } from './quote-line.tsx'
import { RunPanel } from './run-panel.tsx'
import { type Run, useCompletion } from './use-completion.ts'

export function PlaygroundPage() {
  const keys = useQuery(keysQuery)
  const models = useQuery(modelsQuery)
  const session = useQuery(sessionQuery)
  return (
    <Page title="Playground" lead="Every request is quoted before it is sent and paid for by the key you choose.">
      <Loaded
        query={worstOf<UseQueryResult<unknown>>(keys, models, session)}
        skeleton={<Skeleton lines={6} height={24} />}
      >
        {() => {
          const active = keys.data!.data.filter(({ status }) => status === 'active')
          if (active.length === 0) {
            return (
              <Panel>
                <EmptyState
                  title="You need an active key"
                  action={
                    <Link to="/keys" search={{ create: '1' } as never} className={buttonClass({ variant: 'primary' })}>
                      Create a key
                    </Link>
                  }
                >
                  The playground pays with a key and respects its limits, like your own code.
                </EmptyState>
              </Panel>
            )
          }
          return <Workbench keys={active} models={models.data!.data} session={session.data!} />
        }}
      </Loaded>
    </Page>
  )
}

function Workbench({ keys, models, session }: { keys: readonly Key[]; models: readonly Model[]; session: Session }) {
  const search = useSearch({ strict: false }) as { model?: string; key?: string }
  const [form, setForm] = useState<PlaygroundForm>(() => ({
    ...emptyForm,
    model:
      models.find(({ id }) => id === search.model)?.id ??
      models.find(({ id }) => id === session.default_model)?.id ??
      models[0]!.id,
    keyId: keys.find(({ id }) => id === search.key)?.id ?? keys[0]!.id,
  }))
  const onEnded = useCallback((run: Run) => {
    if (run.state !== 'ended' || run.text === '') return
    setForm((now) => ({
      ...now,
      messages: [...now.messages, { role: 'assistant', content: run.text }, { role: 'user', content: '' }],
    }))
  }, [])
  const { run, send, stop } = useCompletion(onEnded)
  const running = run?.state === 'running' || run?.state === 'stopping'
  const problem = formProblem(form)
  const body = bodyOf(form)
  const sentModel = models.find(({ id }) => id === run?.body.model)
  return (
    <div className="grid items-start gap-6 lg:grid-cols-[280px_1fr]">
      <Panel title="Settings">
        <Settings form={form} onChange={setForm} keys={keys} models={models} />
      </Panel>
      <div className="flex min-w-0 flex-col gap-6">
        <Panel>
          <form
            className="flex flex-col gap-4"
            onSubmit={(event) => {
              event.preventDefault()
              if (problem === undefined && !running) send(form.keyId, body)
            }}
          >
            <Messages form={form} onChange={setForm} />
            <div className="flex flex-wrap items-center justify-between gap-3 border-t border-rule pt-4">
              <QuoteLine form={form} body={body} />
              {/* Two elements, not one that changes: a click on Stop must never end as a click on Send. */}
              {running ? (
                <Button key="stop" icon="stopped" variant="danger" onClick={stop} busy={run.state === 'stopping'}>
                  Stop
                </Button>
              ) : (
                <Button key="send" type="submit" variant="primary" disabled={problem !== undefined} title={problem}>
                  Send
                </Button>
              )}
            </div>
          </form>
        </Panel>
        {run !== undefined && sentModel !== undefined && <RunPanel run={run} model={sentModel} />}
        {problem === undefined ? (
          <CallAsCode title="This request as code" session={session} body={body} />
        ) : (
          run !== undefined && <CallAsCode title="The request you sent, as code" session={session} body={run.body} />
        )}
      </div>
    </div>
  )
}

function CallAsCode({ title, session, body }: { title: string; session: Session; body: PlaygroundBody }) {
  return (
    <Panel title={title} testId="call-as-code">
      <SnippetTabs
        only={['curl', 'python', 'node']}
        call={{ baseUrl: session.base_url, apiKey: '$OPENAI_API_KEY', body }}
      />
    </Panel>
  )
}

type FormProps = { form: PlaygroundForm; onChange: (form: PlaygroundForm) => void }

function Settings({ form, onChange, keys, models }: FormProps & { keys: readonly Key[]; models: readonly Model[] }) {
  const set = (changed: Partial<PlaygroundForm>) => onChange({ ...form, ...changed })
  return (
    <div className="flex flex-col gap-4">
      <SelectField label="Model" value={form.model} onChange={({ target }) => set({ model: target.value })}>
        {models.map(({ id }) => (
          <option key={id}>{id}</option>
        ))}
      </SelectField>
      <SelectField
        label="Pay with key"
        value={form.keyId}
        hint={<span className="num">{keys.find(({ id }) => id === form.keyId)?.hint}</span>}
        onChange={({ target }) => set({ keyId: target.value })}
      >
        {keys.map(({ id, name }) => (
          <option key={id} value={id}>
            {name}
          </option>
        ))}
      </SelectField>
      <div className="grid grid-cols-2 gap-3">
        <TextField
          label="Max tokens"
          mono
          inputMode="numeric"
          value={form.maxTokens}
          onChange={({ target }) => set({ maxTokens: target.value.trim() })}
        />
        <TextField
          label="Temperature"
          mono
          inputMode="decimal"
          placeholder="default"
          value={form.temperature}
          onChange={({ target }) => set({ temperature: target.value.trim() })}
        />
      </div>
      <p className="-mt-2 text-sm text-muted">Max tokens set how much is quoted and held.</p>
      <div>
        <Checkbox
          label="Web search and fetch"
          hint="Searches cost extra. The quote shows the most they can add."
          checked={form.search}
          onChange={({ target }) => set({ search: target.checked })}
        />
        <Checkbox
          label="Stream the answer"
          checked={form.stream}
          onChange={({ target }) => set({ stream: target.checked })}
        />
      </div>
    </div>
  )
}

function Messages({ form, onChange }: FormProps) {
  const setMessage = (at: number, content: string) =>
    onChange({ ...form, messages: form.messages.map((one, index) => (index === at ? { ...one, content } : one)) })
  return (
    <>
      <TextArea
        label="System"
        rows={2}
        placeholder="None"
        value={form.system}
        onChange={(system) => onChange({ ...form, system })}
      />
      {form.messages.map(({ role, content }, at) => (
        <TextArea
          // biome-ignore lint/suspicious/noArrayIndexKey: messages are only added at the end and never move.
          key={at}
          label={role === 'user' ? 'You' : 'Answer'}
          rows={role === 'user' ? 3 : 4}
          value={content}
          onChange={(text) => setMessage(at, text)}
        />
      ))}
      {form.messages.length > 1 && (
        <div>
          <Button small variant="quiet" onClick={() => onChange({ ...form, messages: emptyForm.messages })}>
            Start over
          </Button>
        </div>
      )}
    </>
  )
}
