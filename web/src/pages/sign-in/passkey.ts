import { type CallOptions, call } from '../../api/call.ts'
import type { Answer, Session } from '../../api/shapes.ts'

export function passkeysWork(session: Session): boolean {
  return session.sign_in.rp_id !== null && typeof window.PublicKeyCredential === 'function'
}

export async function signInWithPasskey(invitation?: string): Promise<Session> {
  const { options } = await call('POST /api/auth/passkey/options', { body: { purpose: 'sign_in' } })
  const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options as never)
  const credential = await answered(navigator.credentials.get({ publicKey }))
  return call('POST /api/auth/passkey/verify', {
    body: { credential: credential.toJSON() as never, ...(invitation !== undefined && { invitation }) },
  })
}

/**
 * Opens an account with a new passkey, or joins the one of the invitation. The page may still show an account whose session has ended.
 * Refused when a person has signed in in another window, who would get the passkey.
 */
export function openWithPasskey(invitation?: string): Promise<Session> {
  return registerPasskey({ isOfShownAccount: false, headers: { 'x-router-person': 'none' } }, invitation)
}

/** Adds a passkey for the person that this page shows. Refused when the session has ended or belongs to another person. */
export function addPasskey(): Promise<Session> {
  return registerPasskey()
}

async function registerPasskey(options: CallOptions = {}, invitation?: string): Promise<Session> {
  const creation = await call('POST /api/auth/passkey/options', { body: { purpose: 'register' } }, options)
  const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(creation.options as never)
  const credential = await answered(navigator.credentials.create({ publicKey }))
  const body = { credential: credential.toJSON() as never, ...(invitation !== undefined && { invitation }) }
  return call('POST /api/auth/passkey/register', { body }, options)
}

/** Signs the challenge of a confirmation. */
export async function confirmWithPasskey({ options }: Answer<'POST /api/owner/challenge'>) {
  const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options as never)
  const credential = await answered(navigator.credentials.get({ publicKey }))
  return { credential: credential.toJSON() as never }
}

async function answered(asked: Promise<Credential | null>): Promise<PublicKeyCredential> {
  try {
    const credential = await asked
    if (credential !== null) return credential as PublicKeyCredential
  } catch (error) {
    // The browser reports the same error for "declined", "timed out" and "none on this device", on purpose.
    if (!(error instanceof DOMException)) throw error
    if (error.name === 'InvalidStateError')
      throw new PasskeyError('This device already has a passkey for this account.')
  }
  throw new PasskeyError('No passkey was used: you declined, or this device has none for this site. Nothing was sent.')
}

export class PasskeyError extends Error {}
