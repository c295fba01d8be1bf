import { z } from 'zod'
import { alertKinds } from '../../alerts/kinds.ts'
import { signInMethods } from '../../identity/sessions.ts'
import { contract } from '../contract.ts'
import { address, amount, instant, list, money, name, optionalMoney, uuid } from '../shapes.ts'
import { invitationToken, role } from './members.ts'

const established = z.boolean().meta({
  description:
    'Had since the first sign-in, or for `owner_cooldown_seconds`: its removal needs a proof by an established one',
})

const wallet = z
  .object({ object: z.literal('wallet'), address, added_at: instant, last_used_at: instant.nullable(), established })
  .meta({ id: 'Wallet' })

const passkey = z
  .object({
    object: z.literal('passkey'),
    id: uuid,
    name: z.string(),
    added_at: instant,
    last_used_at: instant.nullable(),
    established,
  })
  .meta({ id: 'Passkey' })

const sessionEntry = z
  .object({
    object: z.literal('session_entry'),
    id: uuid,
    current: z.boolean(),
    method: z.enum(signInMethods),
    browser: z.string().nullable().meta({ description: 'Shortened user agent of the browser' }),
    created_at: instant,
    last_used_at: instant,
    expires_at: instant,
  })
  .meta({ id: 'SessionEntry' })

export const account = z
  .object({
    object: z.literal('account'),
    id: uuid,
    name: z.string(),
    created_at: instant,
    deposit_address: address
      .nullable()
      .meta({ description: 'Null until `GET /api/deposits` or the first API key assigns it' }),
    x402_wallet: address.nullable().meta({
      description:
        'Set for a wallet account: it pays per request over x402 from this address, to which its credit is refunded. It has no deposit address and no withdrawals',
    }),
    owner_address: address.nullable().meta({ description: 'The address that receives withdrawals' }),
    owner_usable_from: instant.nullable().meta({ description: 'When a changed owner address takes effect' }),
    alerts: z
      .object({ ...optionalMoney('balance_below'), days_below: z.int().nullable() })
      .meta({ description: 'Shortcut for the alert rules `balance_below` and `days_left`. Null: off' }),
    wallets: z.array(wallet).meta({ description: 'The wallets of the signed-in person' }),
    passkeys: z.array(passkey).meta({ description: 'The passkeys of the signed-in person' }),
  })
  .meta({ id: 'Account' })

const person = z
  .object({
    object: z.literal('person'),
    id: uuid,
    name: z.string(),
    role: role.meta({ description: 'In the current account' }),
    accounts: z.array(z.object({ id: uuid, name: z.string(), role })),
  })
  .meta({ id: 'Person' })

/** The data that every page needs. Never an error: without a session, `person` is null. */
export const session = z
  .object({
    object: z.literal('session'),
    signed_in: z.boolean(),
    account: account.nullable(),
    person: person.nullable().meta({ description: 'Who is signed in, and the accounts to switch to' }),
    session: sessionEntry.nullable(),
    recent_until: instant
      .nullable()
      .meta({ description: 'Until then, withdrawals and changes of account access need no new sign-in' }),
    operator: z.boolean().meta({ description: 'Whether this session can open the operator pages' }),
    environment: z.enum(['sandbox', 'testnet', 'live']),
    public_url: z.string(),
    base_url: z.string().meta({ description: 'Base URL for API clients; ends in /v1' }),
    default_model: z.string().meta({ description: 'The default model' }),
    sign_in: z.object({
      allowed: z.boolean(),
      reason: z.string().nullable().meta({ description: 'Why signing in is not possible here' }),
      domain: z.string(),
      rp_id: z.string().nullable().meta({ description: 'Null if passkeys are not possible, as with an IP address' }),
      local: z.boolean().meta({ description: 'Whether "Continue as local developer" is offered' }),
    }),
    chain: z
      .object({
        id: z.int(),
        name: z.string(),
        usdc_address: address.nullable(),
        takes_coin: z
          .boolean()
          .meta({ description: 'Whether a native transfer of the chain’s coin, USDC, is a deposit too' }),
        explorer_url: z.string().nullable(),
        ...money('deposit_min'),
        owner_cooldown_seconds: z
          .int()
          .meta({ description: 'Waiting period for an owner address that was changed or not confirmed' }),
        rpc_url: z.string().nullable().meta({ description: 'Chain node for wallets; its native currency is USDC' }),
      })
      .nullable(),
    features: z.object({
      faucet: z.boolean(),
      withdrawals: z.boolean(),
      sandbox_controls: z.boolean(),
    }),
    limits: z.object({ ...money('in_flight_cap', 'unsettled_cap') }),
  })
  .meta({ id: 'Session' })

const alertDaysMax = Number(alertKinds.days_left.max)
const alertDays = `must be a whole number of days from 1 to ${alertDaysMax}, or null to turn the warning off`

const signature = z.string().regex(/^0x[0-9a-fA-F]{130}$/, 'must be a signature: 0x and 130 hex digits')
export const signedMessage = z.strictObject({ message: z.string().max(2000), signature }).meta({ id: 'SignedMessage' })
const encoded = z
  .string()
  .max(8000)
  .regex(/^[A-Za-z0-9_-]*$/, 'must be base64url')

// The members of `PublicKeyCredential.toJSON()` that are read; browsers may send more.
const registration = z.looseObject({
  id: encoded,
  type: z.literal('public-key'),
  response: z.looseObject({
    clientDataJSON: encoded,
    authenticatorData: encoded,
    publicKey: encoded,
    publicKeyAlgorithm: z.int(),
  }),
})
export const assertion = z.looseObject({
  id: encoded,
  type: z.literal('public-key'),
  response: z.looseObject({
    clientDataJSON: encoded,
    authenticatorData: encoded,
    signature: encoded,
    userHandle: encoded.nullish(),
  }),
})

/** What a passkey or a wallet made of a `challenge`. */
export const confirmation = z
  .union(
    [z.strictObject({ credential: assertion }), signedMessage],
    'must be what a passkey (credential) or a wallet (message, signature) signed',
  )
  .meta({ id: 'Confirmation' })

export const signingWallet = address.optional().meta({ description: 'The wallet that will sign; absent for a passkey' })

export const challenge = z
  .object({
    object: z.literal('challenge'),
    message: z.string().nullable().meta({ description: 'For a wallet: sign it unchanged with personal_sign' }),
    options: z.looseObject({ challenge: z.string() }).nullable().meta({
      description: 'For a passkey: options for parseRequestOptionsFromJSON. The challenge says what is confirmed',
    }),
  })
  .meta({ id: 'Challenge' })

const alerts = z.strictObject({
  balance_below: amount.nullable().optional(),
  days_below: z
    .int(alertDays)
    .min(1, alertDays)
    .max(alertDaysMax, alertDays)
    .nullable()
    .optional()
    .meta({ description: 'Days that the balance lasts at the rate of the last week' }),
})

export const signInContracts = {
  getSession: contract({
    operation: 'getSession',
    method: 'GET',
    path: '/api/session',
    summary: 'Get the session, and the features of this installation',
    access: 'public',
    answer: session,
  }),
  createNonce: contract({
    operation: 'createNonce',
    method: 'POST',
    path: '/api/auth/nonce',
    summary: 'Get a sign-in message (EIP-4361) for a wallet. Works once, within five minutes',
    access: 'public',
    body: z.strictObject({ address }),
    answer: z.object({
      object: z.literal('nonce'),
      nonce: z.string(),
      message: z.string().meta({ description: 'Sign it unchanged with personal_sign' }),
      expires_at: instant,
    }),
  }),
  signInWithWallet: contract({
    operation: 'signInWithWallet',
    method: 'POST',
    path: '/api/auth/wallet',
    summary: 'Sign in with a signed message. The first sign-in creates an account, or joins one with an `invitation`',
    access: 'public',
    refusedWith: [401, 409],
    body: signedMessage.extend({ invitation: invitationToken.optional() }),
    answer: session,
  }),
  createPasskeyOptions: contract({
    operation: 'createPasskeyOptions',
    method: 'POST',
    path: '/api/auth/passkey/options',
    summary:
      'Get passkey options for navigator.credentials, as read by parseCreationOptionsFromJSON and parseRequestOptionsFromJSON',
    access: 'public',
    refusedWith: [401, 409],
    body: z.strictObject({ purpose: z.enum(['register', 'sign_in']) }),
    answer: z.object({ object: z.literal('passkey_options'), options: z.looseObject({ challenge: z.string() }) }),
  }),
  registerPasskey: contract({
    operation: 'registerPasskey',
    method: 'POST',
    path: '/api/auth/passkey/register',
    summary:
      'With a session: add a passkey for signing in; needs a recent sign-in. Without: create an account with it, or join one with an `invitation`, and sign in. 401 without a session if the request has `x-router-account`; 409 with one of another person than `x-router-person`',
    access: 'public',
    refusedWith: [401, 409],
    body: z.strictObject({ credential: registration, name: name.optional(), invitation: invitationToken.optional() }),
    answer: session,
  }),
  signInWithPasskey: contract({
    operation: 'signInWithPasskey',
    method: 'POST',
    path: '/api/auth/passkey/verify',
    summary: 'Sign in with a passkey',
    access: 'public',
    refusedWith: [401, 409],
    body: z.strictObject({ credential: assertion, invitation: invitationToken.optional() }),
    answer: session,
  }),
  signInWithLink: contract({
    operation: 'signInWithLink',
    method: 'POST',
    path: '/api/auth/link',
    summary: 'Sign in with the token of a printed link (`/login#token=…`). Works once',
    access: 'public',
    refusedWith: [401],
    body: z.strictObject({ token: z.string().min(1).max(200) }),
    answer: session,
  }),
  signInLocally: contract({
    operation: 'signInLocally',
    method: 'POST',
    path: '/api/auth/local',
    summary: 'Sign in to the demo account of the sandbox, from this machine only. 404 otherwise',
    access: 'public',
    refusedWith: [404],
    answer: session,
  }),
  signOut: contract({
    operation: 'signOut',
    method: 'POST',
    path: '/api/auth/logout',
    summary: 'End this session; without one, does nothing',
    access: 'public',
    status: 204,
  }),
  listSessions: contract({
    operation: 'listSessions',
    method: 'GET',
    path: '/api/sessions',
    summary: 'List your sessions, in all accounts',
    access: 'session',
    role: 'viewer',
    answer: list(sessionEntry),
  }),
  endOtherSessions: contract({
    operation: 'endOtherSessions',
    method: 'DELETE',
    path: '/api/sessions',
    summary: 'End all other sessions',
    access: 'session',
    role: 'viewer',
    status: 204,
  }),
  endSession: contract({
    operation: 'endSession',
    method: 'DELETE',
    path: '/api/sessions/{id}',
    summary: 'End one session',
    access: 'session',
    role: 'viewer',
    parameters: z.object({ id: uuid }),
    status: 204,
  }),
  updateAccount: contract({
    operation: 'updateAccount',
    method: 'PATCH',
    path: '/api/account',
    summary: 'Rename the account or set low-balance warnings. Omitted fields stay; null turns a warning off',
    access: 'session',
    role: 'admin',
    examples: { body: { name: 'Production' } },
    body: z.strictObject({ name: name.optional(), alerts: alerts.optional() }),
    answer: account,
  }),
  closeAccount: contract({
    operation: 'closeAccount',
    method: 'DELETE',
    path: '/api/account',
    summary:
      'Close the account: revoke its keys and delete its sign-ins. The ledger stays. 409 while it has money to withdraw; needs a recent sign-in',
    access: 'session',
    role: 'owner',
    status: 204,
  }),
  addWallet: contract({
    operation: 'addWallet',
    method: 'POST',
    path: '/api/wallets',
    summary: 'Add a wallet for signing in; needs a recent sign-in',
    access: 'session',
    role: 'viewer',
    body: signedMessage,
    answer: account,
  }),
  createRemovalChallenge: contract({
    operation: 'createRemovalChallenge',
    method: 'POST',
    path: '/api/removal-challenge',
    summary:
      'Get the challenge that one of your established passkeys or wallets signs to confirm the removal of one. Works once, within five minutes',
    access: 'session',
    role: 'viewer',
    body: z.strictObject({
      remove: z
        .union([address, uuid], 'must be the address of a wallet, or the id of a passkey')
        .meta({ description: 'The address of a wallet, or the id of a passkey' }),
      wallet: signingWallet,
    }),
    answer: challenge,
  }),
  removeWallet: contract({
    operation: 'removeWallet',
    method: 'DELETE',
    path: '/api/wallets/{address}',
    summary:
      'Remove a wallet; needs a recent sign-in, and with `established` a proof. The last way to sign in cannot be removed',
    access: 'session',
    role: 'viewer',
    parameters: z.object({ address }),
    body: z.strictObject({ proof: confirmation.optional() }),
    answer: account,
  }),
  removePasskey: contract({
    operation: 'removePasskey',
    method: 'DELETE',
    path: '/api/passkeys/{id}',
    summary:
      'Remove a passkey; needs a recent sign-in, and with `established` a proof. The last way to sign in cannot be removed',
    access: 'session',
    role: 'viewer',
    parameters: z.object({ id: uuid }),
    body: z.strictObject({ proof: confirmation.optional() }),
    answer: account,
  }),
} as const
