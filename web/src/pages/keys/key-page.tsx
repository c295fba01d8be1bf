import { useQuery } from '@tanstack/react-query'
import { useParams } from '@tanstack/react-router'
import { useState } from 'react'
import { keyQuery } from '../../api/queries.ts'
import { useX402Wallet } from '../../api/session.ts'
import type { Answer } from '../../api/shapes.ts'
import { DayBars } from '../../charts/day-bars.tsx'
import { formatCount } from '../../money/format.ts'
import { BackLink, Page } from '../../shell/page.tsx'
import { Loaded, Skeleton } from '../../ui/loaded.tsx'
import { Facts, numeric, Panel } from '../../ui/panel.tsx'
import { Time } from '../../ui/time.tsx'
import { explainCode } from '../requests/refusals.ts'
import { RecentRequests } from '../requests/request-list.tsx'
import { type IssuedKey, KeyActions, SecretDialog } from './key-actions.tsx'
import { KeyMark, LimitBar } from './keys-page.tsx'

type KeyDetails = Answer<'GET /api/keys/{id}'>

export function KeyPage() {
  const { id } = useParams({ strict: false }) as { id: string }
  const key = useQuery(keyQuery(id))
  const [issued, setIssued] = useState<IssuedKey>()
  return (
    <Page
      title={key.data?.name ?? 'Key'}
      lead={<BackLink to="/keys" label="All keys" />}
      actions={key.data !== undefined && <KeyActions apiKey={key.data} onIssued={setIssued} />}
    >
      <Loaded query={key} skeleton={<Skeleton lines={8} height={24} />}>
        {(data) => (
          <div className="grid items-start gap-6 lg:grid-cols-[1fr_320px]">
            <div className="flex min-w-0 flex-col gap-6">
              <Panel title="Spend by day (UTC)">
                <DayBars
                  label="Spend of this key by day"
                  days={data.spend_by_day.map(({ day, spend_atomic }) => [day, spend_atomic])}
                  height={180}
                />
              </Panel>
              <RecentRequests
                requests={data.recent}
                empty="None yet."
                all="All requests of this key"
                search={{ key: data.id }}
              />
            </div>
            <div className="flex flex-col gap-6">
              <Terms apiKey={data} />
              <Refusals apiKey={data} />
            </div>
          </div>
        )}
      </Loaded>
      {issued !== undefined && <SecretDialog issued={issued} onClose={() => setIssued(undefined)} />}
    </Page>
  )
}

function Terms({ apiKey }: { apiKey: KeyDetails }) {
  return (
    <Panel title="Limits">
      <div className="mb-4">
        <LimitBar apiKey={apiKey} />
      </div>
      <Facts
        rows={[
          ['Status', <KeyMark key="status" status={apiKey.status} />],
          ['Key', apiKey.is_x402 ? 'None: the wallet signs every payment' : numeric(apiKey.hint)],
          ['Resets', apiKey.resets_at && <Time at={apiKey.resets_at} />],
          ['Expires', apiKey.expires_at === null ? 'Never' : <Time key="expires" at={apiKey.expires_at} />],
          ['Created', <Time key="created" at={apiKey.created_at} />],
          [
            'Last used',
            apiKey.last_used_at === null ? 'Never' : <Time key="used" at={apiKey.last_used_at} show="age" />,
          ],
          ['Models', apiKey.allowed_models.length === 0 ? 'All' : apiKey.allowed_models.join(', ')],
          ['Per request', apiKey.max_request_cost ? numeric(`at most $${apiKey.max_request_cost}`) : 'No cap'],
          ['Web tools', apiKey.web_tools ? 'Allowed' : 'Not allowed'],
          ['Addresses', apiKey.allowed_ips.length === 0 ? 'Any' : apiKey.allowed_ips.join(', ')],
          ...apiKey.old_secrets.map(
            ({ hint, works_until }) =>
              [
                `Old secret ${hint}`,
                <span key={hint}>
                  works until <Time at={works_until} />
                </span>,
              ] as const,
          ),
        ]}
      />
    </Panel>
  )
}

function Refusals({ apiKey: { refusals } }: { apiKey: KeyDetails }) {
  const isWalletAccount = useX402Wallet() !== undefined
  return (
    <Panel title="Refusals" testId="refusals">
      {refusals.length === 0 && <p className="text-muted">No requests refused.</p>}
      <ul className="flex flex-col gap-4">
        {refusals.map(({ code, count, last_at }) => {
          const { cause, remedy } = explainCode(code, isWalletAccount)
          return (
            <li key={code}>
              <p className="flex justify-between gap-2 font-medium">
                <code className="num">{code}</code>
                <span className="num">{formatCount(count)}</span>
              </p>
              <p className="text-sm">
                {cause} {remedy}
              </p>
              <p className="text-sm text-muted">
                Last: <Time at={last_at} />
              </p>
            </li>
          )
        })}
      </ul>
    </Panel>
  )
}
