import { ApiError, call } from '../../api/call.ts'
import type { Account, Session } from '../../api/shapes.ts'
import { askWallet, connectWallet, type Wallet, WalletError } from '../../wallet/wallet.ts'

export type SignInMessage = { readonly address: string; readonly text: string }

/** Asks the wallet for its address and the service for the text to be signed by it. */
export async function prepareMessage(wallet: Wallet): Promise<SignInMessage> {
  const address = await connectWallet(wallet)
  return { address, text: await messageFor(address) }
}

async function messageFor(address: string): Promise<string> {
  const { message } = await call('createNonce', { body: { address } })
  // A text that names another site must never be signed here.
  if (!message.startsWith(`${window.location.host} wants you to sign in`))
    throw new WalletError(`The text to sign does not name ${window.location.host}. Nothing was signed.`)
  return message
}

/** Has a wallet of the account sign where its withdrawals go. */
export async function confirmOwnerWithWallet(wallet: Wallet, account: Account, owner: string) {
  const address = await connectWallet(wallet)
  if (!account.wallets.some((own) => own.address.toLowerCase() === address.toLowerCase()))
    throw new WalletError(`${address} is not a wallet of this account. Choose another address in ${wallet.name}.`)
  const { message } = await call('createOwnerChallenge', { body: { address: owner, wallet: address } })
  // The text must name this site and the typed address. Any other text must not be signed.
  const names = message?.startsWith(`${window.location.host} wants you to sign in`)
  if (message === null || !names || !message.toLowerCase().includes(owner.toLowerCase()))
    throw new WalletError('The text to sign does not name this address. Nothing was signed.')
  return { message, signature: await sign(wallet, { address, text: message }) }
}

export async function sign(wallet: Wallet, { address, text }: SignInMessage): Promise<string> {
  const bytes = new TextEncoder().encode(text)
  const hex = `0x${Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')}`
  return (await askWallet(wallet, 'personal_sign', [hex, address])) as string
}

/** Signs in; a text that has expired meanwhile is renewed and signed once more. */
export async function signInWithWallet(wallet: Wallet, prepared: SignInMessage, invitation?: string): Promise<Session> {
  const submit = async (message: SignInMessage) =>
    call('signInWithWallet', {
      body: {
        message: message.text,
        signature: await sign(wallet, message),
        ...(invitation !== undefined && { invitation }),
      },
    })
  try {
    return await submit(prepared)
  } catch (error) {
    if (!(error instanceof ApiError) || !isExpired(error)) throw error
    return submit({ ...prepared, text: await messageFor(prepared.address) })
  }
}

function isExpired({ code, message }: ApiError): boolean {
  return /expired/.test(code) || /expired/i.test(message)
}
