import type { Session } from '../../api/shapes.ts'

export type Ways = { readonly local: boolean; readonly wallet: boolean; readonly passkey: boolean }

/** How the person who is signed in can confirm it. Every way once the session has ended: the service refuses another person. */
export function waysToConfirm({ sign_in, session, account }: Pick<Session, 'sign_in' | 'session' | 'account'>): Ways {
  if (session === null || account === null) return { local: sign_in.local, wallet: true, passkey: true }
  return {
    local: sign_in.local && session.method === 'local',
    wallet: account.wallets.length > 0,
    passkey: account.passkeys.length > 0,
  }
}
