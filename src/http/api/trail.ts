import type { AccountRef } from '../../db/account-ref.ts'
import type { Session } from '../../identity/sessions.ts'
import type { Visitor } from '../visitor.ts'
import type { ApiServices } from './services.ts'

/** What somebody did that decides who may spend an account's money, or where it goes. */
export type AccountEvent =
  | 'signed_in'
  | 'device_confirmed'
  | 'key_created'
  | 'key_changed'
  | 'key_rolled'
  | 'key_revoked'
  | 'wallet_added'
  | 'wallet_removed'
  | 'passkey_added'
  | 'passkey_removed'
  | 'owner_changed'
  | 'account_closed'
  | 'account_reopened'
  | 'withdrawal_requested'
  | 'webhook_created'
  | 'webhook_changed'
  | 'webhook_removed'

/** Who did it, and from where. */
export type Actor = {
  readonly owner: AccountRef
  readonly session: Session | undefined
  readonly visitor: Visitor
}

/** Ids, amounts and addresses of the chain: never a secret, and no word of a customer. */
type Facts = {
  readonly key_id?: string
  readonly changed?: readonly string[]
  readonly limit?: string | null
  readonly address?: string
  readonly passkey_id?: string
  readonly withdrawal_id?: string
  readonly webhook_id?: string
  readonly amount?: string
}

/** One line of log for what was done to an account: when a customer asks who it was, this is all there is. */
export function logAccountEvent({ log }: ApiServices, event: AccountEvent, actor: Actor, facts: Facts = {}): void {
  const { owner, session, visitor } = actor
  const { network } = visitor
  log.info({ event, account_id: owner.accountId, method: session?.method, network, ...facts }, 'account')
}
