import { type UseQueryResult, useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { type ReactNode, useEffect, useLayoutEffect, useMemo, useRef, useSyncExternalStore } from 'react'
import { keysQuery, modelsQuery, sessionQuery } from '../../api/queries.ts'
import { hasRole } from '../../api/session.ts'
import type { Key, Model, Session } from '../../api/shapes.ts'
import { ChangeDialog, DialogButton } from '../../shell/change-dialog.tsx'
import { Page } from '../../shell/page.tsx'
import { usePreference } from '../../shell/preferences.ts'
import type { ChatBody } from '../../snippets/code.ts'
import { SnippetTabs } from '../../snippets/snippet-tabs.tsx'
import { Button, buttonClass } from '../../ui/button.tsx'
import { Dialog } from '../../ui/dialog.tsx'
import { Loaded, Skeleton } from '../../ui/loaded.tsx'
import { useNarrow } from '../../ui/media.ts'
import { EmptyState, Notice, Panel } from '../../ui/panel.tsx'
import { worstOf } from '../../ui/worst-of.ts'
import { Composer } from './composer.tsx'
import { isRunning } from './conversation.ts'
import { ConversationStore, type PlaygroundState, type Storage } from './conversation-store.ts'
import { signedOut } from './kept-conversations.ts'
import { PlaygroundActions } from './playground-actions.ts'
import { firstKey, sendProblem } from './playground-form.ts'
import { SettingsPanel } from './settings-panel.tsx'
import { Thread } from './thread.tsx'

const lead = 'Every request is quoted before it is sent and paid for by the key you choose.'

export function PlaygroundPage() {
  const keys = useQuery(keysQuery)
  const models = useQuery(modelsQuery)
  const session = useQuery(sessionQuery)
  const query = worstOf<UseQueryResult<unknown>>(keys, models, session)
  const active = keys.data?.data.filter(({ status }) => status === 'active')
  if (session.data?.account != null && !hasRole(session.data, 'developer'))
    return (
      <Page title="Playground" lead={lead}>
        <Panel>
          <EmptyState title="Your role cannot send requests">
            Developers, admins and owners of the account can use the playground. Your role is{' '}
            {session.data.person?.role}. Ask an admin for another one.
          </EmptyState>
        </Panel>
      </Page>
    )
  if (active !== undefined && active.length > 0 && models.data !== undefined && session.data?.account != null)
    return <Workbench keys={active} models={models.data.data} session={session.data} />
  return (
    <Page title="Playground" lead={lead}>
      <Loaded query={query} skeleton={<Skeleton lines={6} height={24} />}>
        {() => (
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
        )}
      </Loaded>
    </Page>
  )
}

type WorkbenchProps = { keys: readonly Key[]; models: readonly Model[]; session: Session }

function Workbench({ keys, models, session }: WorkbenchProps) {
  const accountId = session.account!.id
  const [lastKey, rememberKey] = usePreference(`playground-key.${accountId}`, '')
  const { store, state } = useConversation(accountId, {
    model: models.find(({ id }) => id === session.default_model)?.id ?? models[0]!.id,
    keyId: firstKey(keys, lastKey),
  })
  const actions = useMemo(() => new PlaygroundActions(store, models, keys), [store, models, keys])
  useAddress(actions, keys, models)
  useStopKey(actions, state)
  useFollow(state)
  // A key that was revoked or has expired is not replaced silently: the user chooses another one.
  const payingKey = keys.find(({ id }) => id === state.settings.keyId)
  const settings = { ...state.settings, keyId: payingKey?.id ?? '' }
  const { conversation } = state
  const isEmpty = conversation.lanes.every(({ messages }) => messages.length === 0)
  const onKey = (keyId: string) => {
    rememberKey(keyId)
    actions.set({ keyId })
  }
  return (
    <Page
      title="Playground"
      lead={lead}
      actions={
        <Toolbar
          state={{ ...state, settings }}
          actions={actions}
          session={session}
          payingKey={payingKey}
          isEmpty={isEmpty}
        />
      }
    >
      <div className="grid items-start gap-6 md:grid-cols-[minmax(0,1fr)_280px]">
        <SettingsFrame
          summary={`${conversation.lanes.map(({ model }) => model).join(', ')}, ${payingKey?.name ?? 'no key'}`}
        >
          <SettingsPanel
            settings={settings}
            conversation={conversation}
            actions={actions}
            keys={keys}
            models={models}
            onKey={onKey}
          />
        </SettingsFrame>
        <div className="flex min-w-0 flex-col gap-4 md:min-h-[calc(100dvh-15rem)]">
          {isEmpty && <Examples onChoose={(prompt) => actions.setDraft(prompt)} />}
          <Thread conversation={conversation} settings={settings} actions={actions} />
          {state.isTooLargeToKeep && (
            <Notice tone="held" role="status">
              This conversation is too large for the browser to store. If you reload the page, you lose the latest part.
            </Notice>
          )}
          <div className="sticky bottom-14 z-10 mt-auto bg-paper pb-2 md:bottom-0 md:pb-4">
            <Composer conversation={conversation} settings={settings} actions={actions} payingKey={payingKey} />
          </div>
        </div>
      </div>
    </Page>
  )
}

/** Takes model and key from a link such as `/playground?model=…`, once: it does not override later choices. */
function useAddress(actions: PlaygroundActions, keys: readonly Key[], models: readonly Model[]): void {
  const { model, key } = useSearch({ strict: false }) as { model?: string; key?: string }
  const navigate = useNavigate()
  useEffect(() => {
    if (model === undefined && key === undefined) return
    if (models.some(({ id }) => id === model)) actions.setModel(0, model!)
    if (keys.some(({ id }) => id === key)) actions.set({ keyId: key! })
    void navigate({ to: '/playground', search: {} as never, replace: true })
  }, [actions, key, keys, model, models, navigate])
}

/** Escape stops what is streaming, unless it closes a dialog. */
function useStopKey(actions: PlaygroundActions, { conversation }: PlaygroundState): void {
  const running = isRunning(conversation)
  useEffect(() => {
    if (!running) return
    const listen = (event: KeyboardEvent) => {
      if (event.key === 'Escape' && document.querySelector('dialog[open]') === null) actions.stopAll()
    }
    window.addEventListener('keydown', listen)
    return () => window.removeEventListener('keydown', listen)
  }, [actions, running])
}

const nearEndPx = 120

/** Keeps the end of a streaming answer in sight, as long as the reader has not scrolled away from it. */
function useFollow({ conversation }: PlaygroundState): void {
  const isAtEnd = useRef(true)
  useEffect(() => {
    const listen = () => {
      const { scrollHeight } = document.documentElement
      isAtEnd.current = scrollHeight - window.innerHeight - window.scrollY < nearEndPx
    }
    window.addEventListener('scroll', listen, { passive: true })
    return () => window.removeEventListener('scroll', listen)
  }, [])
  useLayoutEffect(() => {
    if (isRunning(conversation) && isAtEnd.current) window.scrollTo({ top: document.documentElement.scrollHeight })
  }, [conversation])
}

function SettingsFrame({ summary, children }: { summary: string; children: ReactNode }) {
  const narrow = useNarrow()
  if (!narrow) {
    return (
      <div className="sticky top-20 order-last max-h-[calc(100dvh-6rem)] overflow-y-auto">
        <Panel title="Settings">{children}</Panel>
      </div>
    )
  }
  return (
    <details className="rounded-md border border-rule bg-surface" data-testid="settings">
      <summary className="px-4 py-3">
        <span className="font-medium">Settings</span>{' '}
        <span className="text-sm wrap-anywhere text-muted">{summary}</span>
      </summary>
      <div className="border-t border-rule p-4">{children}</div>
    </details>
  )
}

const examples = [
  ['Explain', 'Explain how a hash chain makes a log tamper-evident. Use a numbered list and one small example.'],
  ['Write code', 'Write a TypeScript function that retries fetch with exponential backoff, and show how to use it.'],
  ['Make a table', 'Compare PostgreSQL, SQLite and DuckDB in a table: concurrency, size limits, best use.'],
] as const

function Examples({ onChoose }: { onChoose: (prompt: string) => void }) {
  return (
    <div className="my-auto flex flex-col items-center gap-6 py-8" data-testid="examples">
      <div className="text-center">
        <h2 className="text-lg">Start a conversation</h2>
        <p className="mt-1 text-muted">Write a message below, or begin with an example.</p>
      </div>
      <ul className="grid w-full gap-3 lg:grid-cols-3">
        {examples.map(([title, prompt]) => (
          <li key={title} className="contents">
            <button
              type="button"
              onClick={() => onChoose(prompt)}
              className="flex h-full flex-col gap-1 rounded-md border border-rule bg-surface p-3 text-left hover:border-edge"
            >
              <span className="font-medium">{title}</span>
              <span className="text-sm text-muted">{prompt}</span>
            </button>
          </li>
        ))}
      </ul>
    </div>
  )
}

type ToolbarProps = {
  state: PlaygroundState
  actions: PlaygroundActions
  session: Session
  payingKey: Key | undefined
  isEmpty: boolean
}

function Toolbar({ state, actions, session, payingKey, isEmpty }: ToolbarProps) {
  const { conversation, settings, sent } = state
  const { lanes, draft } = conversation
  const running = isRunning(conversation)
  // The call that Send would make; without one, the last call that was made.
  const isReady = sendProblem(settings, conversation, payingKey) === undefined
  const calls = lanes.map((lane, at) => (isReady ? actions.bodyFor(lane, draft) : sent[at]))
  return (
    <>
      {actions.canCompare && (
        <Button icon="columns" onClick={() => actions.compare()} disabled={running}>
          Compare
        </Button>
      )}
      <DialogButton
        icon="playground"
        disabled={calls.every((call) => call === undefined)}
        dialog={(close) => <CodeDialog calls={calls} isNext={isReady} session={session} onClose={close} />}
      >
        Code
      </DialogButton>
      <DialogButton
        icon="trash"
        disabled={isEmpty || running}
        dialog={(close) => (
          <ChangeDialog
            title="Clear this conversation?"
            action="Clear conversation"
            variant="danger"
            make={async () => actions.clear()}
            onClose={close}
          >
            The messages are removed from this tab. We do not store them. Settings and the request log stay.
          </ChangeDialog>
        )}
      >
        Clear
      </DialogButton>
    </>
  )
}

type CodeDialogProps = {
  calls: readonly (ChatBody | undefined)[]
  isNext: boolean
  session: Session
  onClose: () => void
}

function CodeDialog({ calls, isNext, session, onClose }: CodeDialogProps) {
  const known = calls.filter((call) => call !== undefined)
  return (
    <Dialog title={isNext ? 'This request as code' : 'The last request as code'} onClose={onClose} wide>
      <div className="flex flex-col gap-6" data-testid="call-as-code">
        {known.map((body, at) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: a lane is its place.
          <section key={at} aria-label={body.model}>
            {known.length > 1 && <h3 className="num mb-1 text-sm">{body.model}</h3>}
            <SnippetTabs
              only={['curl', 'python', 'node', 'go']}
              call={{ baseUrl: session.base_url, apiKey: '$OPENAI_API_KEY', body }}
            />
          </section>
        ))}
        <p className="text-sm text-muted">
          The key is read from the environment variable <code className="num">OPENAI_API_KEY</code>.
        </p>
      </div>
    </Dialog>
  )
}

/** The conversation of this tab. It is outside the query cache, so that answers continue while another page is open. */
function useConversation(
  accountId: string,
  defaults: { readonly model: string; readonly keyId: string },
): { readonly store: ConversationStore; readonly state: PlaygroundState } {
  const client = useQueryClient()
  const { model, keyId } = defaults
  const store = useMemo(() => {
    const queryKey = ['playground', accountId]
    const known = client.getQueryData<ConversationStore>(queryKey)
    if (known !== undefined) return known
    const made = new ConversationStore(tabStorage(), accountId, { model, keyId })
    client.setQueryDefaults(queryKey, { gcTime: Number.POSITIVE_INFINITY })
    client.setQueryData(queryKey, made)
    window.addEventListener('pagehide', () => made.save())
    window.addEventListener(signedOut, () => made.close(), { once: true })
    return made
  }, [accountId, client, keyId, model])
  useEffect(() => () => store.save(), [store])
  return { store, state: useSyncExternalStore(store.subscribe, store.snapshot) }
}

/** Some browsers forbid storage: the conversation then lasts until the page is reloaded. */
function tabStorage(): Storage {
  try {
    return sessionStorage
  } catch {
    return { getItem: () => null, setItem: () => {}, removeItem: () => {} }
  }
}
