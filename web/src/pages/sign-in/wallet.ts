import { ApiError, call } from '../../api/call.ts'
import type { Session } from '../../api/shapes.ts'
import { askWallet, connectWallet, type Wallet, WalletError } from '../../wallet/wallet.ts'

export type SignInMessage = { readonly address: string; readonly text: string; readonly preparedMs: number }

/** The service takes a text for this long. */
const textMsMax = 5 * 60_000

/** Asks the wallet for its address and the service for the text to be signed by it. */
export async function prepareMessage(wallet: Wallet): Promise<SignInMessage> {
  const address = await connectWallet(wallet)
  return prepareFor(address)
}

async function prepareFor(address: string): Promise<SignInMessage> {
  const preparedMs = Date.now()
  const { message } = await call('POST /api/auth/nonce', { body: { address } })
  // A text that names another site must never be signed here.
  if (!message.startsWith(`${window.location.host} wants you to sign in`))
    throw new WalletError(`The text to sign does not name ${window.location.host}. Nothing was signed.`)
  return { address, text: message, preparedMs }
}

export async function sign(wallet: Wallet, { address, text }: Omit<SignInMessage, 'preparedMs'>): Promise<string> {
  const bytes = new TextEncoder().encode(text)
  const hex = `0x${Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')}`
  return (await askWallet(wallet, 'personal_sign', [hex, address])) as string
}

/** Signs in. A text that has become too old is renewed, also when that happens while the wallet asks: then it asks once more. */
export async function signInWithWallet(wallet: Wallet, prepared: SignInMessage, invitation?: string): Promise<Session> {
  const submit = async (message: SignInMessage) =>
    call('POST /api/auth/wallet', {
      body: {
        message: message.text,
        signature: await sign(wallet, message),
        ...(invitation !== undefined && { invitation }),
      },
    })
  const isTooOld = () => Date.now() - prepared.preparedMs >= textMsMax
  if (isTooOld()) return submit(await prepareFor(prepared.address))
  try {
    return await submit(prepared)
  } catch (error) {
    if (!(error instanceof ApiError) || error.code !== 'sign_in_failed' || !isTooOld()) throw error
    return submit(await prepareFor(prepared.address))
  }
}
