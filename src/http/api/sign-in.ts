import type { AccountRef } from '../../db/account-ref.ts'
import { createNonce, storeChallenge } from '../../identity/challenges.ts'
import { takeLoginToken } from '../../identity/login-links.ts'
import { lockOpenAccount } from '../../identity/open-account.ts'
import { passkeyAlgorithms, type RelyingParty } from '../../identity/passkey-proof.ts'
import { addPasskey, listCredentialIds, provePasskey, proveRegistration } from '../../identity/passkeys.ts'
import { endSession, openSession, type Session, type SignInMethod, sessionSecondsMax } from '../../identity/sessions.ts'
import { SignInFailedError } from '../../identity/sign-in-error.ts'
import { addWallet, createSignInMessage, findWalletAccount, listWallets, proveWallet } from '../../identity/wallets.ts'
import { createAccount, findAccount } from '../../ledger/accounts.ts'
import { reopenAccount } from '../../ledger/close-account.ts'
import { checkSignInIsSafe, clearedCookie, sessionCookie } from '../site.ts'
import type { Visitor } from '../visitor.ts'
import { signInContracts } from './contracts/sign-in.ts'
import { NotInSandboxError, requireRecentSignIn } from './gate.ts'
import { isLocalSignInOffered, type RenderedSession, renderSession } from './render-session.ts'
import type { ApiRouter } from './router.ts'
import type { ApiServices } from './services.ts'
import { logAccountEvent } from './trail.ts'

/** Whoever signs in needs these of the request. */
type SignInCall = {
  readonly visitor: Visitor
  readonly session: Session | undefined
  setHeader(name: string, value: string): void
}

// Shown in the message that a wallet signs where no chain is wired up: Arc's test network.
const chainIdWithoutChain = 5_042_002

export function routeSignIn(router: ApiRouter, services: ApiServices): void {
  const { database, site, chainServices } = services

  router.at(signInContracts.getSession).answer(({ visitor, session }) => renderSession(services, visitor, session))

  router.at(signInContracts.createNonce).answer(async ({ visitor, body }) => {
    checkSignInIsSafe(site, visitor)
    const { nonce, message, expiresAt } = await createSignInMessage(database, {
      publicUrl: site.publicUrl,
      chainId: chainServices.funds?.chain.id ?? chainIdWithoutChain,
      address: body.address,
    })
    return { object: 'nonce', nonce, message, expires_at: expiresAt.toISOString() }
  })

  router.at(signInContracts.signInWithWallet).answer(async (call) => {
    checkSignInIsSafe(site, call.visitor)
    const address = await proveWallet(database, call.body.message, call.body.signature)
    return signIn(services, call, await accountOfWallet(services, call.visitor, address), 'wallet')
  })

  router.at(signInContracts.createPasskeyOptions).answer(async ({ visitor, body, session }) => {
    checkSignInIsSafe(site, visitor)
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
    const { credential, name } = call.body
    const passkey = await proveRegistration(
      database,
      { id: credential.id, ...credential.response },
      relyingParty(services),
    )
    const passkeyName = name ?? 'Passkey'
    if (call.session !== undefined) {
      requireRecentSignIn(call.session)
      const owner = call.session
      await database.transaction(async (connection) => {
        await lockOpenAccount(connection, owner)
        await addPasskey(connection, owner, passkey, passkeyName)
      })
      logAccountEvent(services, 'passkey_added', { ...call, owner: call.session })
      return renderSession(services, call.visitor, call.session)
    }
    const account = await database.transaction(async (connection) => {
      const created = await createAccount(connection, passkeyName, services.ledgerPartitions)
      const owner = { partition: created.partition, accountId: created.id }
      await addPasskey(connection, owner, passkey, passkeyName)
      return owner
    })
    return signIn(services, call, account, 'passkey')
  })

  router.at(signInContracts.signInWithPasskey).answer(async (call) => {
    checkSignInIsSafe(site, call.visitor)
    const { credential } = call.body
    const assertion = { id: credential.id, ...credential.response }
    return signIn(services, call, await provePasskey(database, assertion, relyingParty(services)), 'passkey')
  })

  router.at(signInContracts.signInWithLink).answer(async (call) => {
    checkSignInIsSafe(site, call.visitor)
    const account = await takeLoginToken(database, call.body.token)
    // Links are the operator's: whoever is given one is to be let in, also where nobody else can sign in any more.
    if (await reopenAccount(database, account)) {
      logAccountEvent(services, 'account_reopened', { owner: account, session: undefined, visitor: call.visitor })
    }
    return signIn(services, call, account, 'link')
  })

  router.at(signInContracts.signInLocally).answer(async (call) => {
    if (!isLocalSignInOffered(services, call.visitor)) throw new NotInSandboxError()
    return signIn(services, call, await chainServices.sandbox!.localAccount(), 'local')
  })

  router.at(signInContracts.signOut).answer(async ({ session, setHeader }) => {
    if (session !== undefined) await endSession(database, session, session.id)
    setHeader('set-cookie', clearedCookie(site))
    return undefined
  })
}

/** A new session in place of the one before: a token that somebody planted or saw earlier is worth nothing afterwards. */
export async function signIn(
  services: ApiServices,
  call: SignInCall,
  account: AccountRef,
  method: SignInMethod,
): Promise<RenderedSession> {
  const { database, site } = services
  const { token, session } = await database.transaction(async (connection) => {
    if (call.session !== undefined) await endSession(connection, call.session, call.session.id)
    await lockOpenAccount(connection, account)
    return openSession(connection, account, method, call.visitor.header('user-agent'))
  })
  logAccountEvent(services, 'signed_in', { owner: session, session, visitor: call.visitor })
  call.setHeader('set-cookie', sessionCookie(site, token, sessionSecondsMax))
  return renderSession(services, call.visitor, session)
}

/** The wallet's account; its first sign-in opens one, whose withdrawals go to this wallet. */
async function accountOfWallet(services: ApiServices, visitor: Visitor, address: string): Promise<AccountRef> {
  const { database } = services
  const known = await findWalletAccount(database, address)
  if (known !== undefined) {
    // It is let in all the same: where the signer is away, the next sign-in makes up for it.
    await registerFirstOwner(services, visitor, known, address).catch((error: unknown) =>
      services.log.warn({ err: error, account_id: known.accountId }, 'the first owner could not be registered'),
    )
    return known
  }
  const opened = await database
    .transaction(async (connection) => {
      const { partition, id } = await createAccount(connection, shortened(address), services.ledgerPartitions)
      const owner = await addWallet(connection, { partition, accountId: id }, address)
      // Two first sign-ins at once: the other one's account stands, and this one is rolled back.
      if (owner.accountId !== id) throw new OtherAccountStands()
      return owner
    })
    .catch((error: unknown) => {
      if (error instanceof OtherAccountStands) return undefined
      throw error
    })
  if (opened === undefined) return (await findWalletAccount(database, address))!
  await registerFirstOwner(services, visitor, opened, address)
  return opened
}

/**
 * Where the first sign-in was cut off before it came to this, or its node could not sign, the next one makes up for it. A wallet that
 * is not the account's only way in was added to it later: whoever did that says himself where money goes.
 */
async function registerFirstOwner(
  services: ApiServices,
  visitor: Visitor,
  account: AccountRef,
  address: string,
): Promise<void> {
  const { database, chainServices } = services
  if (chainServices.funds === undefined) return
  const { ownerAddress } = (await findAccount(database, account.partition, account.accountId))!
  if (ownerAddress !== undefined) return
  const [wallets, passkeys] = await Promise.all([listWallets(database, account), listCredentialIds(database, account)])
  if (wallets.length + passkeys.length !== 1) return
  await chainServices.funds.registerOwner({ ...account, address, isConfirmed: true })
  logAccountEvent(services, 'owner_changed', { owner: account, session: undefined, visitor }, { address })
}

class OtherAccountStands extends Error {}

function shortened(address: string): string {
  return `${address.slice(0, 6)}…${address.slice(-4)}`
}

export const ceremonyMsMax = 300_000

async function registrationOptions(
  { database }: ApiServices,
  relyingPartyId: string,
  challenge: string,
  session: Session | undefined,
): Promise<{ challenge: string; [member: string]: unknown }> {
  const known = session === undefined ? [] : await listCredentialIds(database, session)
  return {
    challenge,
    rp: { id: relyingPartyId, name: 'Penny Router' },
    // The handle names nobody: it is made anew for every passkey, and accounts are found by the credential's id.
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
  if (site.relyingPartyId === undefined) throw new NoPasskeysHereError(site.publicUrl)
  return { id: site.relyingPartyId, origin: site.origin }
}

export class NoPasskeysHereError extends SignInFailedError {
  constructor(publicUrl: string) {
    super(`Passkeys need a host name, and ${publicUrl} is an IP address. Set PUBLIC_URL to a host name.`)
  }
}
