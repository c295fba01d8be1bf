import { useInfiniteQuery, useQuery, useQueryClient } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import { call } from '../../api/call.ts'
import { accountLogQuery, sessionQuery, sessionsQuery } from '../../api/queries.ts'
import { hasRole } from '../../api/session.ts'
import type { Account, Session } from '../../api/shapes.ts'
import { Page, useScrollToHash } from '../../shell/page.tsx'
import { type Theme, useShortcutsEnabled, useTheme } from '../../shell/preferences.ts'
import { Item, ResourcePanel } from '../../shell/resource-panel.tsx'
import { settingsSections } from '../../shell/settings-sections.ts'
import { useChange } from '../../shell/use-change.ts'
import { AnchorButton, Button } from '../../ui/button.tsx'
import { CopyableId } from '../../ui/copy.tsx'
import { Checkbox, Segmented, TextField } from '../../ui/field.tsx'
import { Form } from '../../ui/form.tsx'
import { ErrorPanel, Loaded, Skeleton } from '../../ui/loaded.tsx'
import { Panel } from '../../ui/panel.tsx'
import { Time } from '../../ui/time.tsx'
import { AlertsPanel } from './alerts-panel.tsx'
import { browserName } from './browser-name.ts'
import { CloseAccount } from './close-account.tsx'
import { logSentence } from './log-sentence.ts'
import { ManagementKeysPanel } from './management-keys-panel.tsx'
import { MembersPanel } from './members-panel.tsx'
import { OwnerPanel } from './owner-panel.tsx'
import { Passkeys, Wallets } from './sign-in-methods.tsx'
import { WebhooksPanel } from './webhooks-panel.tsx'

export function SettingsPage() {
  const session = useQuery(sessionQuery)
  useScrollToHash(session.data !== undefined)
  return (
    <Page title="Settings">
      <Loaded query={session} skeleton={<Skeleton lines={8} height={24} />}>
        {(data) =>
          data.account === null ? null : (
            <div className="grid grid-cols-1 items-start gap-6 lg:grid-cols-2">
              {settingsSections
                .filter(([, , role]) => hasRole(data, role))
                .map(([id]) => (
                  <div key={id} id={id} className="scroll-mt-20">
                    {sectionOf(id, data, data.account!)}
                  </div>
                ))}
            </div>
          )
        }
      </Loaded>
    </Page>
  )
}

function sectionOf(id: (typeof settingsSections)[number][0], session: Session, account: Account): ReactNode {
  return {
    profile: <Profile session={session} account={account} />,
    browser: <Appearance />,
    passkeys: <Passkeys session={session} account={account} />,
    wallets: <Wallets session={session} account={account} />,
    owner: <OwnerPanel session={session} account={account} />,
    alerts: <AlertsPanel />,
    webhooks: <WebhooksPanel />,
    members: <MembersPanel session={session} />,
    log: <Log />,
    'management-keys': <ManagementKeysPanel />,
    sessions: <Sessions />,
    data: <Data />,
    close: <CloseAccount session={session} account={account} />,
  }[id]
}

function Profile({ session, account }: { session: Session; account: Account }) {
  return (
    <Panel title="Profile">
      <NameForm
        label="Your name, for other members"
        action="your name"
        known={session.person?.name ?? ''}
        rename={(name) => call('PATCH /api/person', { body: { name } })}
      />
      <div className="mt-3">
        <NameForm
          label="Account name"
          disabled={!hasRole(session, 'admin')}
          known={account.name}
          rename={(name) => call('PATCH /api/account', { body: { name } })}
        />
      </div>
      <p className="mt-3 flex flex-wrap items-center gap-x-2 text-sm text-muted">
        Account <CopyableId id={account.id} label="account id" short /> since{' '}
        <Time at={account.created_at} show="day" />
      </p>
    </Panel>
  )
}

type NameFormProps = {
  label: string
  /** Tells screen readers what Save saves, where there is more than one. */
  action?: string
  known: string
  disabled?: boolean
  rename: (name: string) => Promise<unknown>
}

function NameForm({ label, action, known, disabled = false, rename }: NameFormProps) {
  const client = useQueryClient()
  const [edited, setEdited] = useState<string>()
  const name = edited ?? known
  const save = useChange(async () => {
    await rename(name.trim())
    await client.invalidateQueries({ queryKey: sessionQuery.queryKey })
    setEdited(undefined)
  }, 'Saved.')
  return (
    <Form onSubmit={save.mutate} className="flex items-end gap-2">
      <div className="flex-1">
        <TextField label={label} required maxLength={200} disabled={disabled} value={name} onChange={setEdited} />
        {save.error !== null && <ErrorPanel error={save.error} />}
      </div>
      <Button type="submit" disabled={name.trim() === '' || name.trim() === known} busy={save.isPending}>
        Save{action !== undefined && <span className="sr-only"> {action}</span>}
      </Button>
    </Form>
  )
}

function Appearance() {
  const [theme, setTheme] = useTheme()
  const [shortcuts, setShortcuts] = useShortcutsEnabled()
  return (
    <Panel title="This browser">
      <div className="flex flex-col gap-4">
        <div className="flex items-center justify-between gap-4">
          <span>Theme</span>
          <Segmented<Theme>
            label="Theme"
            value={theme}
            options={[
              ['auto', 'Auto'],
              ['light', 'Light'],
              ['dark', 'Dark'],
            ]}
            onChange={setTheme}
          />
        </div>
        <Checkbox
          label="Single-key shortcuts"
          hint="j, k, ? and g with a letter. Ctrl K always works."
          checked={shortcuts}
          onChange={setShortcuts}
        />
      </div>
    </Panel>
  )
}

const methods = { wallet: 'Wallet', passkey: 'Passkey', link: 'Link', local: 'Local developer' }

function Sessions() {
  const end = useChange((id: string) => call('DELETE /api/sessions/{id}', { parameters: { id } }), 'Session ended.')
  const endOthers = useChange(() => call('DELETE /api/sessions'), 'All other sessions ended.')
  const error = end.error ?? endOthers.error
  return (
    <ResourcePanel
      title="Sessions"
      query={useQuery(sessionsQuery)}
      actions={() => (
        <Button small change={endOthers}>
          End other sessions
        </Button>
      )}
      item={({ id, current, method, browser, last_used_at, expires_at }) => (
        <Item
          key={id}
          name={
            <>
              {methods[method]}
              {current && <span className="text-accent"> · this session</span>}
            </>
          }
          notes={[
            <span key="browser" className="block truncate" title={browser ?? undefined}>
              {browserName(browser)}
            </span>,
            <>
              Last used <Time at={last_used_at} show="age" />, ends <Time at={expires_at} />
            </>,
          ]}
          actions={
            !current && (
              <Button small variant="quiet" onClick={() => end.mutate(id)} busy={end.isPending}>
                End
              </Button>
            )
          }
        />
      )}
    >
      {error !== null && <ErrorPanel error={error} />}
    </ResourcePanel>
  )
}

/** The account log, newest first. */
function Log() {
  const log = useInfiniteQuery(accountLogQuery)
  return (
    <Panel title="Account log" testId="account-log">
      <Loaded query={log} skeleton={<Skeleton lines={6} />}>
        {({ pages }) => (
          <ol className="flex flex-col gap-2">
            {pages
              .flatMap(({ data }) => data)
              .map((entry) => (
                <li key={entry.id} data-testid="log-entry">
                  <span className="block break-words">{logSentence(entry)}</span>
                  <span className="block text-sm text-muted">
                    <Time at={entry.created_at} />
                    {entry.network !== null && ` · ${entry.network}`}
                    {entry.method !== null && ` · ${entry.method}`}
                  </span>
                </li>
              ))}
          </ol>
        )}
      </Loaded>
      {log.hasNextPage && (
        <Button small className="mt-3" onClick={() => log.fetchNextPage()} busy={log.isFetchingNextPage}>
          Show older
        </Button>
      )}
      <p className="mt-3 text-sm text-muted">Kept for 400 days. GET /api/log has the same entries.</p>
    </Panel>
  )
}

function Data() {
  return (
    <Panel title="Your data">
      <p>
        Prompts and answers are not stored. The export contains everything we keep about the account, including the
        ledger, in one file.
      </p>
      <AnchorButton icon="download" href="/api/export" download="penny-account.json" className="mt-3">
        Export everything
      </AnchorButton>
    </Panel>
  )
}
