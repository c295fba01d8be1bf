import type { Credential } from '../identity/established.ts'
import type { Assertion } from '../identity/passkey-proof.ts'
import { createPasskeyConfirmation, provePasskeyConfirmation } from '../identity/passkeys.ts'
import { createConfirmationMessage, proveWalletConfirmation } from '../identity/wallets.ts'
import type { ApiServices } from './services.ts'
import { ceremonyMsMax, chainIdOf, relyingParty } from './sign-in.ts'

// A session can be stolen; a passkey or a wallet stays with its owner. So what could cost the owner the money is confirmed with one of
// them, and what it confirms is part of the signed message.

export type Confirmation =
  | { readonly message: string; readonly signature: string }
  | { readonly credential: { readonly id: string; readonly response: Omit<Assertion, 'id'> } }

export const ownerStatement = (address: string) =>
  `Send withdrawals of my Penny Router account to ${address} from now on.`

/** `id` is a wallet's address or a passkey's id. */
export const removalStatement = (id: string) => `Remove ${id} from what I sign in to Penny Router with.`

type Challenge = {
  readonly personId: string
  readonly statement: string
  /** The wallet that will sign; undefined for a passkey. */
  readonly wallet: string | undefined
}

export async function createChallenge(services: ApiServices, { personId, statement, wallet }: Challenge) {
  const { database, site } = services
  if (wallet !== undefined) {
    const options = { publicUrl: site.publicUrl, chainId: chainIdOf(services), address: wallet }
    const message = await createConfirmationMessage(database, options, statement)
    return { object: 'challenge' as const, message, options: null }
  }
  const { id } = relyingParty(services)
  const { challenge, credentialIds } = await createPasskeyConfirmation(database, personId, statement)
  const allowCredentials = credentialIds.map((credentialId) => ({ type: 'public-key', id: credentialId }))
  const options = { challenge, rpId: id, userVerification: 'required', timeout: ceremonyMsMax, allowCredentials }
  return { object: 'challenge' as const, message: null, options }
}

/** Returns the wallet or passkey that signed this statement. Whose it is, and since when, is for the caller to check. */
export async function confirm(
  services: ApiServices,
  statement: string,
  confirmation: Confirmation,
): Promise<Credential> {
  const { database } = services
  if ('credential' in confirmation) {
    const assertion = { id: confirmation.credential.id, ...confirmation.credential.response }
    await provePasskeyConfirmation(database, statement, assertion, relyingParty(services))
    return { passkey: Buffer.from(assertion.id, 'base64url') }
  }
  const { message, signature } = confirmation
  return { wallet: await proveWalletConfirmation(database, message, signature, statement) }
}
