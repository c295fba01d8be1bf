import { call } from '../../api/call.ts'
import type { Session } from '../../api/shapes.ts'

export function passkeysWork(session: Session): boolean {
  return session.sign_in.rp_id !== null && typeof window.PublicKeyCredential === 'function'
}

export async function signInWithPasskey(): Promise<Session> {
  const { options } = await call('createPasskeyOptions', { body: { purpose: 'sign_in' } })
  const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options as never)
  const credential = await answered(navigator.credentials.get({ publicKey }))
  return call('signInWithPasskey', { body: { credential: credential.toJSON() as never } })
}

/** Signed in, it adds a passkey to the account; otherwise it opens an account with it. */
export async function registerPasskey(name?: string): Promise<Session> {
  const { options } = await call('createPasskeyOptions', { body: { purpose: 'register' } })
  const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(options as never)
  const credential = await answered(navigator.credentials.create({ publicKey }))
  return call('registerPasskey', {
    body: { credential: credential.toJSON() as never, ...(name !== undefined && { name }) },
  })
}

async function answered(asked: Promise<Credential | null>): Promise<PublicKeyCredential> {
  try {
    const credential = await asked
    if (credential !== null) return credential as PublicKeyCredential
  } catch (error) {
    // The browser says the same for "declined", "timed out" and "none on this device", on purpose.
    if (!(error instanceof DOMException)) throw error
    if (error.name === 'InvalidStateError')
      throw new PasskeyError('This device already has a passkey for this account.')
  }
  throw new PasskeyError('No passkey was used: you declined, or this device has none for this site. Nothing was sent.')
}

export class PasskeyError extends Error {}
