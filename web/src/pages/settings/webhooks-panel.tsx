import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { call } from '../../api/call.ts'
import { webhookDeliveriesQuery, webhooksQuery } from '../../api/queries.ts'
import type { Webhook, WebhookDelivery } from '../../api/shapes.ts'
import { ChangeDialog, ConfirmButton, DialogButton } from '../../shell/change-dialog.tsx'
import { ResourcePanel } from '../../shell/resource-panel.tsx'
import { useChange } from '../../shell/use-change.ts'
import { Button } from '../../ui/button.tsx'
import { Dialog } from '../../ui/dialog.tsx'
import { Checkboxes, SelectField, TextField } from '../../ui/field.tsx'
import { useForm } from '../../ui/form.tsx'
import { ErrorPanel, Loaded } from '../../ui/loaded.tsx'
import { type Mark, StateMark } from '../../ui/state-mark.tsx'
import { Time } from '../../ui/time.tsx'
import { type Overlap, overlaps } from '../keys/key-terms.ts'

type EventType = Webhook['types'][number]

/** In the order of the form. A type without words does not compile. */
const typeWords: Readonly<Record<EventType, string>> = {
  'request.ended': 'A request ended',
  'request.refused': 'A request was refused',
  'deposit.seen': 'A deposit was seen on the chain',
  'deposit.credited': 'A deposit was credited',
  'payment.settled': 'A payment was settled',
  'payment.failed': 'A payment failed',
  'withdrawal.updated': 'A withdrawal changed state',
  'key.created': 'A key was created',
  'key.updated': 'A key was changed',
  'key.revoked': 'A key was revoked',
  'key.limit_reached': 'A key reached its limit',
  'session.created': 'A member signed in',
  'member.changed': 'A member joined, changed or left',
  'owner.changed': 'The withdrawal address was changed',
  'wallet.added': 'A member added a wallet',
  'wallet.removed': 'A member removed a wallet',
  'passkey.added': 'A member added a passkey',
  'passkey.removed': 'A member removed a passkey',
  'webhook.disabled': 'Another webhook was disabled',
  'alert.fired': 'An alert fired',
  'alert.resolved': 'An alert was resolved',
}
const allTypes = Object.entries(typeWords) as [EventType, string][]
const usualTypes: readonly EventType[] = [
  'deposit.credited',
  'payment.failed',
  'alert.fired',
  'withdrawal.updated',
  'key.limit_reached',
]

const disabledWords: Readonly<Record<NonNullable<Webhook['disabled_reason']>, string>> = {
  failing: 'Disabled: no delivery succeeded for three days.',
  behind: 'Disabled: too many events were waiting.',
  gone: 'Disabled: the endpoint answered 410 Gone.',
  by_owner: 'Disabled by you.',
}

/** Webhook endpoints of the account and their deliveries. */
export function WebhooksPanel() {
  return (
    <ResourcePanel
      title="Webhooks"
      testId="webhooks"
      about={
        <>
          Signed events for your server:{' '}
          <a href="/docs/webhooks" className="link">
            what is sent, and how to verify it
          </a>
          .
        </>
      }
      query={useQuery(webhooksQuery)}
      actions={(show) => (
        <DialogButton small icon="plus" dialog={(close) => <AddDialog onClose={close} onSecret={show} />}>
          Add endpoint
        </DialogButton>
      )}
      item={(webhook, show) => <Endpoint key={webhook.id} webhook={webhook} onSecret={show} />}
      secret={{
        title: 'Signing secret',
        lead: 'Your server verifies messages with this secret. Copy it now: it is not shown again.',
        whenLost: 'You would have to rotate the secret to get a new one.',
      }}
    />
  )
}

function Endpoint({ webhook, onSecret }: { webhook: Webhook; onSecret: (secret: string) => void }) {
  const { id, url, status, disabled_reason: reason, failing_since: failingSince } = webhook
  const parameters = { id }
  const [showsLog, setShowsLog] = useState(false)
  const test = useChange(async () => {
    await call('POST /api/webhooks/{id}/test', { parameters })
    setShowsLog(true)
  }, 'Test event sent.')
  const isEnabled = status === 'enabled'
  const toggle = useChange(
    () => call('PATCH /api/webhooks/{id}', { parameters, body: { enabled: !isEnabled } }),
    'Saved.',
  )
  const error = test.error ?? toggle.error
  return (
    <li className="min-w-0">
      <span className="num block break-all">{url}</span>
      <span className="block text-sm text-muted">
        {webhook.types.length === allTypes.length ? 'All events' : webhook.types.join(', ')}
      </span>
      {reason !== null && <span className="block text-sm text-error">{disabledWords[reason]}</span>}
      {isEnabled && failingSince !== null && (
        <span className="block text-sm text-error">
          Failing since <Time at={failingSince} />
        </span>
      )}
      <span className="mt-1 flex flex-wrap gap-2">
        <Button small onClick={() => setShowsLog(true)}>
          Deliveries
        </Button>
        {isEnabled && (
          <Button small change={test}>
            Send test
          </Button>
        )}
        <DialogButton
          small
          variant="quiet"
          dialog={(close) => <RotateSecretDialog webhook={webhook} onClose={close} onSecret={onSecret} />}
        >
          Rotate secret
        </DialogButton>
        <Button small variant="quiet" change={toggle}>
          {isEnabled ? 'Disable' : 'Enable'}
        </Button>
        <ConfirmButton
          label="Remove"
          name={url}
          title="Remove webhook"
          action="Remove webhook"
          make={() => call('DELETE /api/webhooks/{id}', { parameters })}
          said="Webhook removed."
        >
          <p>
            No more events are sent to <span className="num">{url}</span>. Its secret and its list of deliveries are
            deleted, and events that wait to be sent are lost. To stop only for a while, disable it instead.
          </p>
        </ConfirmButton>
      </span>
      {error !== null && <ErrorPanel error={error} />}
      {showsLog && <DeliveriesDialog webhook={webhook} onClose={() => setShowsLog(false)} />}
    </li>
  )
}

type RotateProps = { webhook: Webhook; onClose: () => void; onSecret: (secret: string) => void }

function RotateSecretDialog({ webhook: { id, url }, onClose, onSecret }: RotateProps) {
  const { fields, field } = useForm<{ overlap: Overlap }>({ overlap: '86400' })
  const body = { overlap_seconds: Number(fields.overlap) }
  return (
    <ChangeDialog
      title="Rotate secret"
      action="Rotate secret"
      make={() => call('POST /api/webhooks/{id}/rotate', { parameters: { id }, body })}
      said="Secret rotated."
      onMade={({ secret }) => onSecret(secret)}
      onClose={onClose}
      ifMade="The secret may have been rotated, but the new one cannot be shown any more. Rotate it again to get a new secret."
    >
      <p>
        <span className="num">{url}</span> gets a new secret, shown once. Until old secrets end, messages are signed
        with them too.
      </p>
      <SelectField
        label="Old secret ends"
        options={[['0', 'Immediately, with all older ones'], ...overlaps.slice(1)]}
        {...field('overlap')}
      />
    </ChangeDialog>
  )
}

function AddDialog({ onClose, onSecret }: { onClose: () => void; onSecret: (secret: string) => void }) {
  const { fields, field } = useForm<{ url: string; types: readonly EventType[] }>({ url: '', types: usualTypes })
  const body = { url: fields.url.trim(), types: [...fields.types] }
  return (
    <ChangeDialog
      title="Add a webhook endpoint"
      action="Add endpoint"
      make={() => call('POST /api/webhooks', { body })}
      said="Webhook added."
      onMade={({ secret }) => onSecret(secret)}
      disabled={body.url === '' || body.types.length === 0}
      onClose={onClose}
      ifMade="The endpoint may have been added, but its secret cannot be shown any more. If it is in the list, rotate its secret to get one."
    >
      <TextField label="Address" mono placeholder="https://example.com/penny-events" {...field('url')} />
      <Checkboxes legend="Events" all={allTypes} hasCodes {...field('types')} />
    </ChangeDialog>
  )
}

const stateMarks: Readonly<Record<WebhookDelivery['state'], readonly [Mark, string]>> = {
  waiting: ['pending', 'Waiting'],
  delivered: ['settled', 'Delivered'],
  failed: ['failed', 'Failed'],
}

function DeliveriesDialog({ webhook, onClose }: { webhook: Webhook; onClose: () => void }) {
  return (
    <Dialog title="Deliveries" wide onClose={onClose}>
      <p className="num mb-3 text-sm break-all text-muted">{webhook.url}</p>
      <Loaded query={useQuery(webhookDeliveriesQuery(webhook.id))}>
        {({ data }) =>
          data.length === 0 ? (
            <p className="text-muted">Nothing was sent yet.</p>
          ) : (
            <ul className="flex flex-col gap-4">
              {data.map((delivery) => (
                <DeliveryEntry key={delivery.id} webhook={webhook} delivery={delivery} />
              ))}
            </ul>
          )
        }
      </Loaded>
    </Dialog>
  )
}

function DeliveryEntry({ webhook, delivery }: { webhook: Webhook; delivery: WebhookDelivery }) {
  const [mark, word] = stateMarks[delivery.state]
  const resend = useChange(
    () =>
      call('POST /api/webhooks/{id}/deliveries/{event}/resend', { parameters: { id: webhook.id, event: delivery.id } }),
    'Sent again.',
  )
  return (
    <li data-testid="webhook-delivery" className="min-w-0">
      <div className="flex flex-wrap items-center justify-between gap-2">
        <span>
          <StateMark mark={mark} word={word} /> {delivery.type} <Time at={delivery.created_at} show="age" />
        </span>
        {webhook.status === 'enabled' && (
          <Button small variant="quiet" change={resend}>
            Send again
          </Button>
        )}
      </div>
      <ol className="text-sm text-muted">
        {delivery.attempts.map(({ at, status, error, duration_ms: ms }) => (
          <li key={at}>
            <Time at={at} /> · {status === null ? error : `HTTP ${status}`} · {ms} ms
          </li>
        ))}
      </ol>
      {delivery.next_attempt_at !== null && delivery.attempts.length > 0 && (
        <p className="text-sm text-muted">
          Next attempt <Time at={delivery.next_attempt_at} />
        </p>
      )}
      <details className="text-sm">
        <summary>{delivery.id}</summary>
        <pre className="num mt-1 overflow-x-auto rounded-md bg-sunken p-2 break-all whitespace-pre-wrap">
          {delivery.body}
        </pre>
        {delivery.attempts.at(-1)?.answer && (
          <pre className="num mt-1 overflow-x-auto rounded-md bg-sunken p-2 break-all whitespace-pre-wrap">
            {delivery.attempts.at(-1)?.answer}
          </pre>
        )}
      </details>
      {resend.error !== null && <ErrorPanel error={resend.error} />}
    </li>
  )
}
