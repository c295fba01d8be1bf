import type { AccountRef } from '../db/account-ref.ts'
import { TokenBuckets } from '../fairness/token-buckets.ts'
import { checkSignInIsSafe } from '../http/origin.ts'
import type { Visitor } from '../http/visitor.ts'
import {
  cancelDeviceLogin,
  confirmDeviceLogin,
  type DeviceLogin,
  declineDeviceLogin,
  deviceLoginSecondsMax,
  findDeviceLogin,
  pollDeviceLogin,
  pollSecondsMin,
  shownUserCode,
  startDeviceLogin,
} from '../identity/device-logins.ts'
import type { AnswerOf } from '../openapi/contract.ts'
import { deviceContracts } from '../openapi/contracts/devices.ts'
import type { DepositAddresses } from './deposit-addresses.ts'
import { checkNewKey, issueKey } from './keys.ts'
import { logAccountEvent } from './log-account-event.ts'
import type { ApiRouter } from './router.ts'
import type { ApiServices } from './services.ts'

/** Device logins: a terminal asks for an API key, and a signed-in person confirms it. */
export function routeDevices(router: ApiRouter, services: ApiServices, addresses: DepositAddresses): void {
  const { database, site, now } = services
  // Codes are short. Accounts are free, so guesses are counted by network as well.
  const guesses = new TokenBuckets({ burstMax: 30, perSecond: 0.2, now })
  const countGuess = ({ owner, visitor }: { readonly owner: AccountRef; readonly visitor: Visitor }) => {
    guesses.take(owner.accountId)
    guesses.take(visitor.network)
  }

  router.at(deviceContracts.startDeviceLogin).answer(async ({ visitor, body }) => {
    checkSignInIsSafe(site, visitor)
    const { deviceCode, userCode } = await startDeviceLogin(database, {
      machine: body.machine,
      network: visitor.network,
    })
    const page = `${site.publicUrl}/device`
    return {
      object: 'device_code',
      device_code: deviceCode,
      user_code: shownUserCode(userCode),
      verification_uri: page,
      verification_uri_complete: `${page}?code=${shownUserCode(userCode)}`,
      expires_in: deviceLoginSecondsMax,
      interval: pollSecondsMin,
    }
  })

  router.at(deviceContracts.pollDeviceLogin).answer(async ({ visitor, body }) => {
    const poll = await pollDeviceLogin(database, body.device_code)
    const state = { object: 'device_login_state', status: poll.status, interval: null, key: null } as const
    if (poll.status === 'pending' || poll.status === 'slow_down') return { ...state, interval: poll.intervalSeconds }
    if (poll.status !== 'confirmed') return state
    const terms = deviceContracts.confirmDeviceLogin.body.parse(poll.terms)
    const actor = { owner: poll.account, session: undefined, visitor, madeBy: poll.personId }
    return { ...state, key: await issueKey(services, addresses, actor, terms) }
  })

  router.at(deviceContracts.cancelDeviceLogin).answer(async ({ body }) => {
    await cancelDeviceLogin(database, body.device_code)
    return undefined
  })

  router.at(deviceContracts.getDeviceLogin).answer(async (call) => {
    countGuess(call)
    return render(await findDeviceLogin(database, call.owner, call.parameters.code))
  })

  router.at(deviceContracts.confirmDeviceLogin).answer(async (call) => {
    const { owner, session, parameters, body } = call
    countGuess(call)
    await checkNewKey(services, owner, body)
    const confirmed = await database.transaction(async (connection) => {
      await call.lockAccess(connection)
      const login = await confirmDeviceLogin(connection, session, parameters.code, body)
      const facts = { name: login.machine }
      await logAccountEvent({ ...services, database: connection }, 'device_confirmed', call, facts)
      return login
    })
    return render(confirmed)
  })

  router.at(deviceContracts.declineDeviceLogin).answer(async (call) => {
    countGuess(call)
    return render(await declineDeviceLogin(database, call.parameters.code))
  })
}

function render(login: DeviceLogin): AnswerOf<typeof deviceContracts.getDeviceLogin> {
  return {
    object: 'device_login',
    user_code: shownUserCode(login.userCode),
    machine: login.machine,
    network: login.network,
    status: login.status,
    created_at: login.createdAt.toISOString(),
    expires_at: login.expiresAt.toISOString(),
  }
}
