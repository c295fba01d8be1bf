import type { AccountRef } from '../../db/account-ref.ts'
import type { Connection } from '../../db/database.ts'
import { lockAccount } from '../../db/lock-account.ts'
import { ServiceError } from '../../errors.ts'
import { lockOpenAccount } from '../../identity/open-account.ts'
import { removePasskey } from '../../identity/passkeys.ts'
import { endOtherSessions, endSession, listSessions } from '../../identity/sessions.ts'
import { shutOut } from '../../identity/shut-out.ts'
import { addWallet, proveWallet, removeWallet } from '../../identity/wallets.ts'
import { renameAccount } from '../../ledger/accounts.ts'
import { type AlertChanges, changeAlerts } from '../../ledger/alerts.ts'
import { closeAccount, NotClosableError } from '../../ledger/close-account.ts'
import { parse, zero } from '../../money/usdc.ts'
import { clearedCookie } from '../site.ts'
import type { BodyOf } from './contract.ts'
import { signInContracts } from './contracts/sign-in.ts'
import { requireRecentSignIn } from './gate.ts'
import { unusable } from './input-refusal.ts'
import { renderAccount, renderSessionEntry } from './render-session.ts'
import { type ApiRouter, NotFoundError } from './router.ts'
import type { ApiServices } from './services.ts'
import { logAccountEvent } from './trail.ts'

/** Who may sign in to the account, and who is. */
export function routeAccount(router: ApiRouter, services: ApiServices): void {
  const { database, chainServices, site } = services

  router.at(signInContracts.listSessions).answer(async ({ session }) => {
    const sessions = await listSessions(database, session)
    const data = sessions.map((entry) => renderSessionEntry(entry, session))
    return { object: 'list', data, has_more: false, next_cursor: null }
  })

  router.at(signInContracts.endOtherSessions).answer(async ({ session }) => {
    await endOtherSessions(database, session)
    return undefined
  })

  router.at(signInContracts.endSession).answer(async ({ session, parameters }) => {
    if (!(await endSession(database, session, parameters.id))) throw new NotFoundError()
    return undefined
  })

  router.at(signInContracts.updateAccount).answer(async ({ owner, body }) => {
    // Read before anything is written: a change that is refused changes nothing.
    const alerts = body.alerts && readAlertChanges(body.alerts)
    if (body.name !== undefined) await renameAccount(database, owner.partition, owner.accountId, body.name)
    if (alerts !== undefined) await changeAlerts(database, owner, alerts)
    return renderAccount(services, owner)
  })

  router.at(signInContracts.closeAccount).answer(async (call) => {
    const { session, setHeader } = call
    requireRecentSignIn(session)
    await refuseDemoAccount(services, session)
    await database.transaction(async (connection) => {
      await closeAccount(connection, session, chainServices.funds?.depositMin ?? zero)
      await shutOut(connection, session)
    })
    logAccountEvent(services, 'account_closed', call)
    setHeader('set-cookie', clearedCookie(site))
    return undefined
  })

  router.at(signInContracts.addWallet).answer(async (call) => {
    const { session, body } = call
    requireRecentSignIn(session)
    const address = await proveWallet(database, body.message, body.signature)
    const owner = await database.transaction(async (connection) => {
      await lockOpenAccount(connection, session)
      return addWallet(connection, session, address)
    })
    if (owner.accountId !== session.accountId) throw new WalletTakenError()
    logAccountEvent(services, 'wallet_added', call, { address })
    return renderAccount(services, session)
  })

  router.at(signInContracts.removeWallet).answer(async (call) => {
    const { session, parameters } = call
    requireRecentSignIn(session)
    await keepingAWayIn(services, session, (connection) => removeWallet(connection, session, parameters.address))
    logAccountEvent(services, 'wallet_removed', call, { address: parameters.address.toLowerCase() })
    return renderAccount(services, session)
  })

  router.at(signInContracts.removePasskey).answer(async (call) => {
    const { session, parameters } = call
    requireRecentSignIn(session)
    await keepingAWayIn(services, session, (connection) => removePasskey(connection, session, parameters.id))
    logAccountEvent(services, 'passkey_removed', call, { passkey_id: parameters.id })
    return renderAccount(services, session)
  })
}

type AlertsBody = NonNullable<BodyOf<typeof signInContracts.updateAccount>['alerts']>

function readAlertChanges({ balance_below, days_below }: AlertsBody): AlertChanges {
  const balanceBelow = typeof balance_below === 'string' ? parse(balance_below) : balance_below
  if (balanceBelow === 0n) throw unusable('alerts.balance_below', 'it must be above 0, or null for no warning')
  return { balanceBelow, daysBelow: days_below }
}

/** One click signs in to it, and the sandbox starts with it: closed, it would be back at once. */
async function refuseDemoAccount({ chainServices }: ApiServices, { accountId }: AccountRef): Promise<void> {
  if (chainServices.sandbox === undefined) return
  const demo = await chainServices.sandbox.localAccount()
  if (demo.accountId === accountId)
    throw new NotClosableError(
      'This is the demo account of the sandbox and cannot be closed. Use Reset data to start over.',
    )
}

/** Removes something by which one signs in, unless it is the last. The account's lock keeps two removals apart. */
async function keepingAWayIn(
  { database }: ApiServices,
  account: AccountRef,
  remove: (connection: Connection) => Promise<boolean>,
): Promise<void> {
  await database.transaction(async (connection) => {
    await lockAccount(connection, account)
    if (!(await remove(connection))) throw new NotFoundError()
    const [left] = await connection.query<{ count: number }>(
      `select ((select count(*) from wallets where account_id = $1) + (select count(*) from passkeys where account_id = $1))::int
         as count`,
      [account.accountId],
    )
    if (left!.count === 0) throw new LastWayInError()
  })
}

export class WalletTakenError extends ServiceError {
  readonly code = 'invalid_value'
  constructor() {
    super('This wallet signs in to another account. Remove it there first, or use another wallet.')
  }
}

export class LastWayInError extends ServiceError {
  readonly code = 'invalid_value'
  constructor() {
    super('This is the last way to sign in to the account. Add another wallet or passkey first.')
  }
}
