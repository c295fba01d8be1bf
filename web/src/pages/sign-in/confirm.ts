import { call } from '../../api/call.ts'
import type { Account, Session } from '../../api/shapes.ts'
import { connectWallet, type Wallet, WalletError } from '../../wallet/wallet.ts'
import { confirmWithPasskey, passkeysWork } from './passkey.ts'
import { sign } from './wallet.ts'

/** What is confirmed: where withdrawals go, or the removal of a wallet or passkey, by its id. */
type Subject = { readonly owner: string } | { readonly remove: string }

/** Has a passkey or a wallet of the account confirm it. */
export async function confirmBy(means: 'passkey' | Wallet, account: Account, subject: Subject) {
  if (means === 'passkey') return confirmWithPasskey(await challenge(subject))
  const address = await connectWallet(means)
  if (!account.wallets.some((own) => own.address.toLowerCase() === address.toLowerCase()))
    throw new WalletError(`${address} is not a wallet of this account. Choose another address in ${means.name}.`)
  const { message } = await challenge(subject, address)
  // The text must name this site and what is confirmed. Any other text must not be signed.
  const names = message?.startsWith(`${window.location.host} wants you to sign in`)
  const named = 'owner' in subject ? subject.owner : subject.remove
  if (message === null || !names || !message.toLowerCase().includes(named.toLowerCase()))
    throw new WalletError('The text to sign does not name what you confirm. Nothing was signed.')
  return { message, signature: await sign(means, { address, text: message }) }
}

function challenge(subject: Subject, wallet?: string) {
  const by = wallet !== undefined && { wallet }
  if ('owner' in subject) return call('POST /api/owner/challenge', { body: { address: subject.owner, ...by } })
  return call('POST /api/removal-challenge', { body: { ...subject, ...by } })
}

/**
 * Confirms a first owner address with a passkey, so that it takes effect immediately. Undefined where it would wait anyway or need not: the
 * service then decides.
 */
export async function confirmOwner(session: Session, account: Account, address: string) {
  if (session.chain === null || session.chain.owner_cooldown_seconds === 0) return undefined
  if (account.passkeys.length === 0 || !passkeysWork(session)) return undefined
  return confirmBy('passkey', account, { owner: address })
}
