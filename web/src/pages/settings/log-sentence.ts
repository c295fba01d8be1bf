import type { LogEntry } from '../../api/shapes.ts'
import { formatExact } from '../../money/format.ts'

const actors: Readonly<Record<LogEntry['actor']['kind'], string>> = {
  person: 'A member',
  api_key: 'An API key',
  management_key: 'A management key',
  operator: 'The operator',
  service: 'The service',
}

const deeds: Readonly<Record<LogEntry['event'], string>> = {
  signed_in: 'signed in',
  device_confirmed: 'confirmed a login from the terminal',
  key_created: 'created the key',
  key_changed: 'changed the key',
  key_rotated: 'rotated the key',
  key_revoked: 'revoked the key',
  management_key_created: 'created the management key',
  management_key_changed: 'changed the management key',
  management_key_rotated: 'rotated the management key',
  management_key_revoked: 'revoked the management key',
  wallet_added: 'added a wallet',
  wallet_removed: 'removed a wallet',
  passkey_added: 'added a passkey',
  passkey_removed: 'removed a passkey',
  member_invited: 'created an invitation',
  invitation_revoked: 'revoked an invitation',
  member_joined: 'joined',
  member_changed: 'changed the member',
  member_removed: 'removed the member',
  member_left: 'left',
  account_changed: 'changed the settings',
  owner_changed: 'set the withdrawal address',
  account_closed: 'closed the account',
  account_reopened: 'reopened the account',
  account_suspended: 'suspended the account',
  account_resumed: 'resumed the account',
  account_adjusted: 'adjusted the balance',
  login_link_created: 'created a sign-in link',
  withdrawal_requested: 'requested a withdrawal',
  refused: 'was refused',
  webhook_created: 'added a webhook',
  webhook_changed: 'changed a webhook',
  webhook_removed: 'removed a webhook',
  alert_email_set: 'set the e-mail address for alerts',
  alert_email_confirmed: 'confirmed the e-mail address for alerts',
  alert_email_removed: 'removed the e-mail address for alerts',
}

const operations: Readonly<Record<string, string>> = {
  createWithdrawal: 'a withdrawal',
  setOwner: 'a change of the withdrawal address',
  createOwnerChallenge: 'a change of the withdrawal address',
  closeAccount: 'closing the account',
  resetSandbox: 'a reset of the sandbox',
}

/** "Ada created the key “CI”". */
export function logSentence({ event, actor, facts }: LogEntry): string {
  const text = (name: string) => (typeof facts[name] === 'string' ? (facts[name] as string) : undefined)
  const isSelf = event === 'member_joined' || event === 'member_left'
  const who = actor.name ?? (isSelf ? text('name') : undefined) ?? actors[actor.kind]
  const amount = text('amount')
  const operation = text('operation')
  const parts = [
    who,
    deeds[event],
    !isSelf && text('name') !== undefined && `“${text('name')}”`,
    text('role') !== undefined && `as ${text('role')}`,
    amount !== undefined && `of ${formatExact(BigInt(amount))}`,
    text('address'),
    operation !== undefined && `${operations[operation] ?? operation}, which needs the role ${text('needed')}`,
  ]
  return parts.filter(Boolean).join(' ')
}
