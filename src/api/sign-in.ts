import { type AccountRef, accountRef } from '../db/account-ref.ts'
import type { Connection } from '../db/database.ts'
import { checkSignInIsSafe, clearedCookie, sessionCookie } from '../http/origin.ts'
import type { Visitor } from '../http/visitor.ts'
import { createNonce, storeChallenge } from '../identity/challenges.ts'
import { requireEstablished } from '../identity/established.ts'
import { acceptInvitation } from '../identity/invitations.ts'
import { takeLoginToken } from '../identity/login-links.ts'
import {
  addMember,
  findLastAccount,
  findLinkOwner,
  findMember,
  listMembers,
  lockAccountsOf,
} from '../identity/members.ts'
import { lockOpenAccount } from '../identity/open-account.ts'
import { passkeyAlgorithms, type RelyingParty } from '../identity/passkey-proof.ts'
import { addPasskey, listCredentialIds, provePasskey, proveRegistration } from '../identity/passkeys.ts'
import { countCredentials, createPerson, lockPerson } from '../identity/people.ts'
import {
  endSession,
  isSessionAlive,
  NotAMemberError,
  openSession,
  type Session,
  type SignIn,
  type SignInMethod,
  sessionSecondsMax,
} from '../identity/sessions.ts'
import { SignInFailedError } from '../identity/sign-in-error.ts'
import { addWallet, createSignInMessage, findWalletPerson, proveWallet } from '../identity/wallets.ts'
import { createAccount, findAccount } from '../ledger/accounts.ts'
import { reopenAccount } from '../ledger/close-account.ts'
import { findWallet } from '../ledger/wallet-accounts.ts'
import type { Contract } from '../openapi/contract.ts'
import { signInContracts } from '../openapi/contracts/sign-in.ts'
import {
  accountHeader,
  NotInSandboxError,
  requirePerson,
  requireRecentSignIn,
  requireShownPerson,
  SessionRequiredError,
} from './gate.ts'
import { logAccountEvent } from './log-account-event.ts'
import { isLocalSignInOffered, type RenderedSession, renderSession } from './render-session.ts'
import type { ApiRouter } from './router.ts'
import type { ApiServices } from './services.ts'

type SignInCall = {
  readonly visitor: Visitor
  readonly session: Session | undefined
  setHeader(name: string, value: string): void
}

/** For the messages that wallets sign. Without a chain: Arc's test network. */
export const chainIdOf = ({ chainServices }: ApiServices) => chainServices.funds?.chain.id ?? 5_042_002

export function routeSignIn(router: ApiRouter, services: ApiServices): void {
  const { database, site, chainServices } = services

  router.at(signInContracts.getSession).answer(({ visitor, session }) => renderSession(services, visitor, session))

  router.at(signInContracts.createNonce).answer(async ({ visitor, body }) => {
    checkSignInIsSafe(site, visitor)
    const { nonce, message, expiresAt } = await createSignInMessage(database, {
      publicUrl: site.publicUrl,
      chainId: chainIdOf(services),
      address: body.address,
    })
    return { object: 'nonce', nonce, message, expires_at: expiresAt.toISOString() }
  })

  router.at(signInContracts.signInWithWallet).answer(async (call) => {
    checkSignInIsSafe(site, call.visitor)
    const { message, signature, invitation } = call.body
    const address = await proveWallet(database, message, signature)
    const signedIn = await signInWithWallet(services, call, address, invitation)
    if (invitation === undefined) await registerFirstOwner(services, call.visitor, signedIn, address)
    return signIn(services, call, signedIn, 'wallet')
  })

  router.at(signInContracts.createPasskeyOptions).answer(async ({ visitor, body, session }) => {
    checkSignInIsSafe(site, visitor)
    // Before the device creates a passkey, which would stay on it and open nothing.
    if (body.purpose === 'register') requireUsableSession(signInContracts.createPasskeyOptions, visitor, session)
    const { id } = relyingParty(services)
    const nonce = createNonce()
    await storeChallenge(database, nonce, body.purpose)
    const challenge = Buffer.from(nonce, 'latin1').toString('base64url')
    const options =
      body.purpose === 'register'
        ? await registrationOptions(services, id, challenge, session)
        : { challenge, rpId: id, userVerification: 'required', timeout: ceremonyMsMax, allowCredentials: [] }
    return { object: 'passkey_options', options }
  })

  router.at(signInContracts.registerPasskey).answer(async (call) => {
    checkSignInIsSafe(site, call.visitor)
    requireUsableSession(signInContracts.registerPasskey, call.visitor, call.session)
    const { credential, name, invitation } = call.body
    const passkey = await proveRegistration(
      database,
      { id: credential.id, ...credential.response },
      relyingParty(services),
    )
    const passkeyName = name ?? 'Passkey'
    if (call.session !== undefined) {
      const { session } = call
      await database.transaction(async (connection) => {
        await lockSignIn(connection, session)
        await addPasskey(connection, session.personId, passkey, passkeyName)
        await logAccountEvent({ ...services, database: connection }, 'passkey_added', { ...call, owner: session })
      })
      return renderSession(services, call.visitor, session)
    }
    const signedIn = await database.transaction(async (connection) => {
      const personId = await createPerson(connection, passkeyName)
      await addPasskey(connection, personId, passkey, passkeyName)
      return selectAccount({ ...services, database: connection }, call, { personId, name: passkeyName }, invitation)
    })
    return signIn(services, call, signedIn, 'passkey')
  })

  router.at(signInContracts.signInWithPasskey).answer(async (call) => {
    checkSignInIsSafe(site, call.visitor)
    const { credential, invitation } = call.body
    const assertion = { id: credential.id, ...credential.response }
    const personId = await provePasskey(database, assertion, relyingParty(services))
    const signedIn = await database.transaction((connection) =>
      selectAccount({ ...services, database: connection }, call, { personId, name: 'Passkey' }, invitation),
    )
    return signIn(services, call, signedIn, 'passkey')
  })

  router.at(signInContracts.signInWithLink).answer(async (call) => {
    checkSignInIsSafe(site, call.visitor)
    const account = await takeLoginToken(database, call.body.token)
    // The operator issued the link, so it also reopens a closed account.
    const { visitor } = call
    await database.transaction(async (connection) => {
      if (!(await reopenAccount(connection, account))) return
      const actor = { owner: account, session: undefined, visitor }
      await logAccountEvent({ ...services, database: connection }, 'account_reopened', actor)
    })
    return signIn(services, call, await linkSignIn(account, call.visitor), 'link')
  })

  router.at(signInContracts.signInLocally).answer(async (call) => {
    if (!isLocalSignInOffered(services, call.visitor)) throw new NotInSandboxError()
    return signIn(services, call, await linkSignIn(await chainServices.sandbox!.localAccount(), call.visitor), 'local')
  })

  router.at(signInContracts.signOut).answer(async ({ session, setHeader }) => {
    if (session !== undefined) await endSession(database, session.personId, session.id)
    setHeader('set-cookie', clearedCookie(site))
    return undefined
  })

  async function linkSignIn(account: AccountRef, visitor: Visitor): Promise<SignIn> {
    const personId = await database.transaction((connection) => findLinkOwner(connection, account))
    requireShownPerson(personId, visitor)
    return { personId, account }
  }
}

/**
 * Throws unless the visitor may register a passkey now. A page that shows an account adds the passkey to its person: when the session of
 * that page has ended, the passkey must not open a new, empty account. When it is that of another person by now, who has signed in in
 * another window, the passkey must not become theirs.
 */
function requireUsableSession(contract: Contract, visitor: Visitor, session: Session | undefined): void {
  if (session !== undefined) {
    requirePerson(session, visitor)
    requireRecentSignIn(session)
  } else if (visitor.header(accountHeader) !== undefined) throw new SessionRequiredError(contract, false)
}

/** Call it before adding a wallet or passkey: throws when the account was closed, or the session or the person was deleted in the meantime. */
export async function lockSignIn(connection: Connection, session: Session): Promise<void> {
  await lockAccountsOf(connection, session.personId)
  await lockOpenAccount(connection, session)
  const isSignedIn = (await lockPerson(connection, session.personId)) && (await isSessionAlive(connection, session))
  if (!isSignedIn) throw new NotAMemberError()
}

/** Always creates a new session and ends the previous one (session fixation: an earlier token must not become valid). */
export async function signIn(
  services: ApiServices,
  call: SignInCall,
  signedIn: SignIn,
  method: SignInMethod,
): Promise<RenderedSession> {
  const { database, site } = services
  const { token, session } = await database.transaction(async (connection) => {
    // The account's lock comes before locks of sessions, as when a member is removed: otherwise the two could deadlock.
    await lockOpenAccount(connection, signedIn.account)
    if (call.session !== undefined) await endSession(connection, call.session.personId, call.session.id)
    const opened = await openSession(connection, signedIn, method, call.visitor.header('user-agent'))
    const actor = { owner: opened.session, session: opened.session, visitor: call.visitor }
    await logAccountEvent({ ...services, database: connection }, 'signed_in', actor)
    return opened
  })
  call.setHeader('set-cookie', sessionCookie(site, token, sessionSecondsMax))
  return renderSession(services, call.visitor, session)
}

type Services = Omit<ApiServices, 'database'> & { readonly database: Connection }

/**
 * Selects the account to sign in to: that of the invitation, else that of the current session, else the one used last, else a new one.
 * Call it in a transaction, so that an invalid invitation leaves no person behind.
 */
async function selectAccount(
  services: Services,
  { visitor, session }: Pick<SignInCall, 'visitor' | 'session'>,
  { personId, name }: { readonly personId: string; readonly name: string },
  invitation: string | undefined,
): Promise<SignIn> {
  const { database: connection } = services
  requireShownPerson(personId, visitor)
  if (invitation !== undefined) {
    const { account, joined } = await acceptInvitation(connection, invitation, personId)
    if (joined) {
      const member = (await findMember(connection, account, personId))!
      const person = { personId, personName: member.name }
      const facts = { member_id: personId, name: member.name, role: member.role }
      await logAccountEvent(services, 'member_joined', { owner: account, session: undefined, person, visitor }, facts)
    }
    return { personId, account }
  }
  // Signing in again, for a recent sign-in, must not switch the account.
  if (session?.personId === personId) return { personId, account: accountRef(session) }
  // Of two concurrent first sign-ins, the second one finds the account of the first.
  if (!(await lockPerson(connection, personId))) throw new NotAMemberError()
  const last = await findLastAccount(connection, personId)
  if (last !== undefined) return { personId, account: last }
  const { partition, id } = await createAccount(connection, name, services.ledgerPartitions)
  const account = { partition, accountId: id }
  await addMember(connection, account, { personId, role: 'owner' })
  return { personId, account }
}

/** A wallet that has paid over x402 already has an account without members. The person becomes its owner and sees its credit and log. */
async function claimWalletAccount(connection: Connection, personId: string, address: string): Promise<void> {
  const wallet = await findWallet(connection, address, 1)
  if (!wallet.isKnown || (await listMembers(connection, wallet)).length > 0) return
  const { closedAt } = (await findAccount(connection, wallet.partition, wallet.accountId))!
  if (closedAt === undefined) await addMember(connection, accountRef(wallet), { personId, role: 'owner' })
}

/** The first sign-in with a wallet creates a person. */
async function signInWithWallet(
  services: ApiServices,
  call: SignInCall,
  address: string,
  invitation: string | undefined,
): Promise<SignIn> {
  const { database } = services
  const name = `${address.slice(0, 6)}…${address.slice(-4)}`
  const select = async (connection: Connection, personId: string) => {
    await claimWalletAccount(connection, personId, address)
    return selectAccount({ ...services, database: connection }, call, { personId, name }, invitation)
  }
  const signedIn = await database
    .transaction(async (connection) => {
      const known = await findWalletPerson(connection, address)
      if (known !== undefined) return select(connection, known)
      const personId = await createPerson(connection, name)
      // A concurrent first sign-in has created the person: roll this one back.
      if ((await addWallet(connection, personId, address)) !== personId) throw new WalletKnownError()
      return select(connection, personId)
    })
    .catch((error: unknown) => {
      if (error instanceof WalletKnownError) return undefined
      throw error
    })
  if (signedIn !== undefined) return signedIn
  return database.transaction(async (connection) => select(connection, (await findWalletPerson(connection, address))!))
}

/**
 * Makes the first wallet of an account its withdrawal address. Repeated at later sign-ins if the first one was interrupted or its node had
 * no signer. Not done for a wallet that is one of several credentials: the owners then choose the address themselves. Nor for a recent
 * one of an older account: a stolen session can add a wallet and remove all other credentials and members. The sign-in succeeds even
 * if the signer is unavailable.
 */
async function registerFirstOwner(
  services: ApiServices,
  visitor: Visitor,
  { personId, account }: SignIn,
  address: string,
): Promise<void> {
  const { database, chainServices, log } = services
  if (chainServices.funds === undefined) return
  const { ownerAddress, wallet } = (await findAccount(database, account.partition, account.accountId))!
  // The money of a wallet account can only go back to its wallet.
  if (wallet !== undefined || ownerAddress !== undefined) return
  const members = await listMembers(database, account)
  const isOnly = members.length === 1 && members[0]!.personId === personId && members[0]!.role === 'owner'
  if (!isOnly || (await countCredentials(database, personId)) !== 1) return
  try {
    await requireEstablished(database, account, { wallet: address }, chainServices.funds.ownerCooldownMs)
    const actor = { owner: account, session: undefined, visitor }
    await chainServices.funds.registerOwner({ ...account, address, isConfirmed: true }, (connection) =>
      logAccountEvent({ ...services, database: connection }, 'owner_changed', actor, { address }),
    )
  } catch (error) {
    // A recent wallet: the dashboard offers its holder to register it with a waiting period.
    if (error instanceof SignInFailedError) return
    log.warn({ err: error, account_id: account.accountId }, 'the first owner could not be registered')
  }
}

class WalletKnownError extends Error {}

export const ceremonyMsMax = 300_000

async function registrationOptions(
  { database }: ApiServices,
  relyingPartyId: string,
  challenge: string,
  session: Session | undefined,
): Promise<{ challenge: string; [member: string]: unknown }> {
  const known = session === undefined ? [] : await listCredentialIds(database, session.personId)
  return {
    challenge,
    rp: { id: relyingPartyId, name: 'Penny Router' },
    // Random for every passkey, so that it identifies no person. People are found by the credential id.
    user: {
      id: Buffer.from(createNonce().slice(0, 32), 'hex').toString('base64url'),
      name: 'Penny Router',
      displayName: 'Penny Router',
    },
    pubKeyCredParams: passkeyAlgorithms.map((alg) => ({ type: 'public-key', alg })),
    authenticatorSelection: { residentKey: 'required', requireResidentKey: true, userVerification: 'required' },
    attestation: 'none',
    timeout: ceremonyMsMax,
    excludeCredentials: known.map((id) => ({ type: 'public-key', id })),
  }
}

export function relyingParty({ site }: ApiServices): RelyingParty {
  if (site.relyingPartyId === undefined)
    throw new SignInFailedError(
      `Passkeys need a host name, and ${site.publicUrl} is an IP address. Set PUBLIC_URL to a host name.`,
    )
  return { id: site.relyingPartyId, origin: site.origin }
}
