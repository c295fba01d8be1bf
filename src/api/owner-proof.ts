import type { AccountRef } from '../db/account-ref.ts'
import { type Credential, requireEstablished } from '../identity/established.ts'
import type { Assertion } from '../identity/passkey-proof.ts'
import { createPasskeyOwnerChallenge, provePasskeyOwner } from '../identity/passkeys.ts'
import { createOwnerMessage, proveWalletOwner } from '../identity/wallets.ts'
import type { ApiServices } from './services.ts'
import { ceremonyMsMax, relyingParty } from './sign-in.ts'

// A session can be stolen; a passkey or a wallet stays with its owner. So a new owner address is confirmed with one of them, and the
// address is part of the signed message.

export type OwnerProof =
  | { readonly message: string; readonly signature: string }
  | { readonly credential: { readonly id: string; readonly response: Omit<Assertion, 'id'> } }

type Challenge = {
  readonly personId: string
  readonly address: string
  readonly wallet: string | undefined
  readonly chainId: number
}

export async function createOwnerChallenge(services: ApiServices, { personId, address, wallet, chainId }: Challenge) {
  const { database, site } = services
  if (wallet !== undefined) {
    const message = await createOwnerMessage(database, { publicUrl: site.publicUrl, chainId, address: wallet }, address)
    return { object: 'owner_challenge' as const, message, options: null }
  }
  const { id } = relyingParty(services)
  const { challenge, credentialIds } = await createPasskeyOwnerChallenge(database, personId, address)
  const allowCredentials = credentialIds.map((credentialId) => ({ type: 'public-key', id: credentialId }))
  const options = { challenge, rpId: id, userVerification: 'required', timeout: ceremonyMsMax, allowCredentials }
  return { object: 'owner_challenge' as const, message: null, options }
}

/** Throws unless an owner's passkey or wallet has signed this address. */
export async function confirmOwner(
  services: ApiServices,
  owner: AccountRef,
  address: string,
  proof: OwnerProof,
): Promise<void> {
  const { database, chainServices } = services
  const credential = await proven(services, address, proof)
  await requireEstablished(database, owner, credential, chainServices.funds!.ownerCooldownMs)
}

async function proven(services: ApiServices, address: string, proof: OwnerProof): Promise<Credential> {
  const { database } = services
  if ('credential' in proof) {
    const assertion = { id: proof.credential.id, ...proof.credential.response }
    await provePasskeyOwner(database, address, assertion, relyingParty(services))
    return { passkey: Buffer.from(assertion.id, 'base64url') }
  }
  return { wallet: await proveWalletOwner(database, proof.message, proof.signature, address) }
}
