import { ApiError, call } from '../../api/call.ts'
import type { Session } from '../../api/shapes.ts'

// Wallets of this browser, found by EIP-6963: each announces itself, none is preferred, no third party is asked.

export type Wallet = {
  readonly id: string
  readonly name: string
  /** A data: address of a picture. */
  readonly icon: string
  readonly provider: Provider
}

type Provider = { request(call: { method: string; params?: readonly unknown[] }): Promise<unknown> }

type Announcement = CustomEvent<{
  readonly info: { readonly uuid: string; readonly name: string; readonly icon: string }
  readonly provider: Provider
}>

/** Reports every wallet that announces itself, for as long as the caller listens. */
export function watchWallets(onWallet: (wallet: Wallet) => void): () => void {
  const hear = (event: Event) => {
    const { info, provider } = (event as Announcement).detail
    onWallet({ id: info.uuid, name: info.name, icon: info.icon, provider })
  }
  window.addEventListener('eip6963:announceProvider', hear)
  window.dispatchEvent(new Event('eip6963:requestProvider'))
  return () => window.removeEventListener('eip6963:announceProvider', hear)
}

export type SignInMessage = { readonly address: string; readonly text: string }

/** Asks the wallet for its address and the service for the text to be signed by it. */
export async function prepareMessage(wallet: Wallet): Promise<SignInMessage> {
  const accounts = (await ask(wallet, 'eth_requestAccounts')) as readonly string[]
  const address = accounts[0]
  if (address === undefined) throw new WalletError('The wallet shared no address. Unlock it and try again.')
  return { address, text: await messageFor(address) }
}

async function messageFor(address: string): Promise<string> {
  const { message } = await call('createNonce', { body: { address } })
  // A text that names another site must never be signed here, whoever sent it.
  if (!message.startsWith(`${window.location.host} wants you to sign in`))
    throw new WalletError(`The text to sign does not name ${window.location.host}. Nothing was signed.`)
  return message
}

export async function sign(wallet: Wallet, { address, text }: SignInMessage): Promise<string> {
  const bytes = new TextEncoder().encode(text)
  const hex = `0x${Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')}`
  return (await ask(wallet, 'personal_sign', [hex, address])) as string
}

/** Signs in; a text that has expired meanwhile is renewed and signed once more. */
export async function signInWithWallet(wallet: Wallet, prepared: SignInMessage): Promise<Session> {
  const submit = async (message: SignInMessage) =>
    call('signInWithWallet', { body: { message: message.text, signature: await sign(wallet, message) } })
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

async function ask(wallet: Wallet, method: string, params?: readonly unknown[]): Promise<unknown> {
  try {
    return await wallet.provider.request({ method, ...(params !== undefined && { params }) })
  } catch (error) {
    const { code, message } = error as { code?: number; message?: string }
    if (code === 4001) throw new WalletError('You declined the signature. Nothing was sent.')
    throw new WalletError(`${wallet.name} answered: ${message ?? 'an error without a message'}`)
  }
}

/** What the wallet or its owner refused: to be shown as it is. */
export class WalletError extends Error {}
