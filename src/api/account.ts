import { deleteAlertsOf, evaluateAccounts } from '../alerts/alerts.ts'
import { alertKinds } from '../alerts/kinds.ts'
import { setRule } from '../alerts/rules.ts'
import type { AccountRef } from '../db/account-ref.ts'
import type { Connection } from '../db/database.ts'
import { ServiceError } from '../errors.ts'
import { checkSignInIsSafe, clearedCookie } from '../http/origin.ts'
import { requireRemovable } from '../identity/established.ts'
import { lockAccountsOf } from '../identity/members.ts'
import { removePasskey } from '../identity/passkeys.ts'
import { countCredentials, lockPerson } from '../identity/people.ts'
import { revokeAccess } from '../identity/revoke-access.ts'
import { endOtherSessions, endSession, listSessions } from '../identity/sessions.ts'
import { addWallet, proveWallet, removeWallet } from '../identity/wallets.ts'
import { renameAccount } from '../ledger/accounts.ts'
import { closeAccount, NotClosableError } from '../ledger/close-account.ts'
import { parse, zero } from '../money/usdc.ts'
import type { BodyOf } from '../openapi/contract.ts'
import { signInContracts } from '../openapi/contracts/sign-in.ts'
import { unusable } from '../openapi/input-refusal.ts'
import { ownerCooldownMs } from './chain-services.ts'
import { confirm, createChallenge, removalStatement } from './confirmation.ts'
import { requireRecentSignIn } from './gate.ts'
import { logAccountEvent } from './log-account-event.ts'
import { type RenderedAccount, renderAccount, renderSessionEntry } from './render-session.ts'
import { type ApiRouter, type Call, NotFoundError } from './router.ts'
import type { ApiServices } from './services.ts'
import { lockSignIn } from './sign-in.ts'

/** The account, its sessions, and the person's wallets and passkeys. */
export function routeAccount(router: ApiRouter, services: ApiServices): void {
  const { database, chainServices, site } = services

  router.at(signInContracts.listSessions).answer(async ({ session }) => {
    const sessions = await listSessions(database, session.personId)
    const data = sessions.map((entry) => renderSessionEntry(entry, session))
    return { object: 'list', data, has_more: false, next_cursor: null }
  })

  router.at(signInContracts.endOtherSessions).answer(async ({ session }) => {
    await endOtherSessions(database, session)
    return undefined
  })

  router.at(signInContracts.endSession).answer(async ({ session, parameters }) => {
    if (!(await endSession(database, session.personId, parameters.id))) throw new NotFoundError()
    return undefined
  })

  router.at(signInContracts.updateAccount).answer(async (call) => {
    const { owner, session, body } = call
    // Parsed before anything is written: an invalid body must change nothing.
    const rules = body.alerts === undefined ? [] : readAlertChanges(body.alerts)
    await database.transaction(async (connection) => {
      if (body.name !== undefined) await renameAccount(connection, owner.partition, owner.accountId, body.name)
      for (const rule of rules) await setRule(connection, owner, rule)
      const facts = { changed: Object.keys(body) }
      await logAccountEvent({ ...services, database: connection }, 'account_changed', call, facts)
    })
    if (rules.length > 0) await evaluateAccounts(database, owner.partition, [owner.accountId])
    return renderAccount(services, owner, session)
  })

  router.at(signInContracts.closeAccount).answer(async (call) => {
    const { session, setHeader } = call
    requireRecentSignIn(session)
    await refuseDemoAccount(services, session)
    await database.transaction(async (connection) => {
      await call.lockAccess(connection)
      await closeAccount(connection, session, chainServices.funds?.depositMin ?? zero)
      await revokeAccess(connection, session)
      await deleteAlertsOf(connection, session)
      await logAccountEvent({ ...services, database: connection }, 'account_closed', call)
    })
    setHeader('set-cookie', clearedCookie(site))
    return undefined
  })

  router.at(signInContracts.addWallet).answer(async (call) => {
    const { session, body } = call
    requireRecentSignIn(session)
    const address = await proveWallet(database, body.message, body.signature)
    await database.transaction(async (connection) => {
      await lockSignIn(connection, session)
      if ((await addWallet(connection, session.personId, address)) !== session.personId)
        throw new ServiceError('invalid_value', 'This wallet belongs to another person. Use another wallet.')
      await logAccountEvent({ ...services, database: connection }, 'wallet_added', call, { address })
    })
    return renderAccount(services, session, session)
  })

  router.at(signInContracts.createRemovalChallenge).answer(async ({ session, visitor, body }) => {
    checkSignInIsSafe(site, visitor)
    const { personId } = session
    return createChallenge(services, {
      personId,
      statement: removalStatement(body.remove.toLowerCase()),
      wallet: body.wallet,
    })
  })

  router.at(signInContracts.removeWallet).answer(async (call) => {
    const address = call.parameters.address.toLowerCase()
    return removeCredential(call, address, async (connection) => {
      if (!(await removeWallet(connection, call.session.personId, address))) return false
      await logAccountEvent({ ...services, database: connection }, 'wallet_removed', call, { address })
      return true
    })
  })

  router.at(signInContracts.removePasskey).answer(async (call) => {
    const { id } = call.parameters
    return removeCredential(call, id, async (connection) => {
      if (!(await removePasskey(connection, call.session.personId, id))) return false
      await logAccountEvent({ ...services, database: connection }, 'passkey_removed', call, { passkey_id: id })
      return true
    })
  })

  /** Removes a wallet or passkey unless it is the last. The person's lock serializes two removals. */
  async function removeCredential(
    { session, body: { proof } }: Call<typeof signInContracts.removeWallet | typeof signInContracts.removePasskey>,
    id: string,
    remove: (connection: Connection) => Promise<boolean>,
  ): Promise<RenderedAccount> {
    requireRecentSignIn(session)
    const { personId } = session
    const confirmedBy = proof === undefined ? undefined : await confirm(services, removalStatement(id), proof)
    await database.transaction(async (connection) => {
      await lockAccountsOf(connection, personId)
      await lockPerson(connection, personId)
      await requireRemovable(connection, personId, { id, confirmedBy }, ownerCooldownMs(services))
      if (!(await remove(connection))) throw new NotFoundError()
      if ((await countCredentials(connection, personId)) === 0)
        throw new ServiceError(
          'invalid_value',
          'This is your last way to sign in. Add another wallet or passkey first.',
        )
    })
    return renderAccount(services, session, session)
  }
}

type AlertsBody = NonNullable<BodyOf<typeof signInContracts.updateAccount>['alerts']>

/** The two rules about the balance, by their short names. Rules that are left out stay. */
function readAlertChanges({ balance_below, days_below }: AlertsBody) {
  const balanceBelow = typeof balance_below === 'string' ? parse(balance_below) : balance_below
  if (balanceBelow === 0n) throw unusable('alerts.balance_below', 'it must be above 0, or null for no warning')
  const days = typeof days_below === 'number' ? BigInt(days_below) : days_below
  const rule = (kind: 'balance_below' | 'days_left', threshold: bigint | null) => ({
    kind,
    threshold: threshold ?? undefined,
    rearm: threshold === null ? undefined : alertKinds[kind].rearm(threshold),
  })
  return [
    ...(balanceBelow === undefined ? [] : [rule('balance_below', balanceBelow)]),
    ...(days === undefined ? [] : [rule('days_left', days)]),
  ]
}

/** The sandbox starts with this account and offers a one-click sign-in to it. Closed, it would come back immediately. */
async function refuseDemoAccount({ chainServices }: ApiServices, { accountId }: AccountRef): Promise<void> {
  if (chainServices.sandbox === undefined) return
  const demo = await chainServices.sandbox.localAccount()
  if (demo.accountId === accountId)
    throw new NotClosableError(
      'This is the demo account of the sandbox and cannot be closed. Use Reset data to start over.',
    )
}
