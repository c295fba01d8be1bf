import type { z } from 'zod'
import type { AlertKind } from '../alerts/kinds.ts'
import { readRules } from '../alerts/rules.ts'
import type { AccountRef } from '../db/account-ref.ts'
import { signInProblem } from '../http/origin.ts'
import type { Visitor } from '../http/visitor.ts'
import { listEstablished } from '../identity/established.ts'
import { listAccountsOf } from '../identity/members.ts'
import { listPasskeys } from '../identity/passkeys.ts'
import { recentSecondsMax, type Session } from '../identity/sessions.ts'
import { listWallets } from '../identity/wallets.ts'
import { findAccount } from '../ledger/accounts.ts'
import { moneyFields } from '../money/money-fields.ts'
import { format, fromAtomic } from '../money/usdc.ts'
import type { account, session as sessionShape } from '../openapi/contracts/sign-in.ts'
import { ownerCooldownMs } from './chain-services.ts'
import { isOperatorOf } from './operator.ts'
import type { ApiServices } from './services.ts'

export type RenderedSession = z.output<typeof sessionShape>
export type RenderedAccount = z.output<typeof account>

/** The session, and the sign-in methods of this installation. */
export async function renderSession(
  services: ApiServices,
  visitor: Visitor,
  session: Session | undefined,
): Promise<RenderedSession> {
  const { site, chainServices, prices, inFlightCap, unsettledCap } = services
  const problem = signInProblem(site, visitor)
  const chain = chainServices.funds?.chain
  return {
    object: 'session',
    signed_in: session !== undefined,
    account: session === undefined ? null : await renderAccount(services, session, session),
    person: session === undefined ? null : await renderPerson(services, session),
    session: session === undefined ? null : renderSessionEntry(session, session),
    recent_until: session?.isRecent
      ? new Date(session.createdAt.getTime() + recentSecondsMax * 1000).toISOString()
      : null,
    operator: session !== undefined && (await isOperatorOf(services, session)),
    environment: chainServices.environment,
    public_url: site.publicUrl,
    base_url: `${site.publicUrl}/v1`,
    default_model: prices.defaultModel,
    sign_in: {
      allowed: problem === undefined,
      reason: problem ?? null,
      domain: site.domain,
      rp_id: site.relyingPartyId ?? null,
      local: isLocalSignInOffered(services, visitor),
    },
    chain:
      chain === undefined
        ? null
        : {
            id: chain.id,
            name: chain.name,
            usdc_address: chain.usdcAddress,
            takes_coin: chain.takesCoin,
            explorer_url: chain.explorerUrl ?? null,
            rpc_url: chain.publicRpcUrl ?? null,
            ...moneyFields({ deposit_min: chainServices.funds!.depositMin }),
            owner_cooldown_seconds: Math.ceil(ownerCooldownMs(services) / 1000),
          },
    features: {
      faucet: chainServices.sandbox?.faucet !== undefined,
      withdrawals: chainServices.funds !== undefined,
      sandbox_controls: chainServices.sandbox?.mine !== undefined || chainServices.sandbox?.failNext !== undefined,
    },
    limits: moneyFields({ in_flight_cap: inFlightCap, unsettled_cap: unsettledCap }),
  }
}

/** The one-click sign-in needs no proof, so it is limited to the sandbox and to visitors on this machine. */
export function isLocalSignInOffered({ site, chainServices }: ApiServices, visitor: Visitor): boolean {
  return (
    chainServices.sandbox !== undefined &&
    site.isLoopback &&
    visitor.isLocal &&
    signInProblem(site, visitor) === undefined
  )
}

async function renderPerson(
  { database }: Pick<ApiServices, 'database'>,
  { personId, personName, role }: Session,
): Promise<NonNullable<RenderedSession['person']>> {
  const accounts = await listAccountsOf(database, personId)
  return {
    object: 'person',
    id: personId,
    name: personName,
    role,
    accounts: accounts.map(({ accountId, ...account }) => ({ id: accountId, name: account.name, role: account.role })),
  }
}

/** Includes the wallets and passkeys of the signed-in person. */
export async function renderAccount(
  services: Pick<ApiServices, 'database' | 'chainServices'>,
  owner: AccountRef,
  { personId }: Pick<Session, 'personId'>,
): Promise<RenderedAccount> {
  const { database } = services
  const [found, rules, wallets, passkeys, established] = await Promise.all([
    findAccount(database, owner.partition, owner.accountId),
    readRules(database, owner),
    listWallets(database, personId),
    listPasskeys(database, personId),
    listEstablished(database, personId, ownerCooldownMs(services)),
  ])
  const isEstablished = (id: string) => established.some((credential) => credential.id === id)
  const thresholdOf = (wanted: AlertKind) => rules.find(({ kind }) => kind === wanted)?.threshold
  const [balanceBelow, daysBelow] = [thresholdOf('balance_below'), thresholdOf('days_left')]
  return {
    object: 'account',
    id: owner.accountId,
    name: found!.name,
    created_at: found!.createdAt.toISOString(),
    deposit_address: found!.address ?? null,
    x402_wallet: found!.wallet ?? null,
    owner_address: found!.ownerAddress ?? null,
    owner_usable_from: found!.ownerUsableFrom?.toISOString() ?? null,
    alerts: {
      balance_below_atomic: balanceBelow?.toString() ?? null,
      balance_below: balanceBelow === undefined ? null : format(fromAtomic(balanceBelow)),
      days_below: daysBelow === undefined ? null : Number(daysBelow),
    },
    wallets: wallets.map(({ address, addedAt, lastUsedAt }) => ({
      object: 'wallet',
      address,
      added_at: addedAt.toISOString(),
      last_used_at: lastUsedAt?.toISOString() ?? null,
      established: isEstablished(address),
    })),
    passkeys: passkeys.map(({ id, name, addedAt, lastUsedAt }) => ({
      object: 'passkey',
      id,
      name,
      added_at: addedAt.toISOString(),
      last_used_at: lastUsedAt?.toISOString() ?? null,
      established: isEstablished(id),
    })),
  }
}

export function renderSessionEntry(entry: Session, current: Session): NonNullable<RenderedSession['session']> {
  return {
    object: 'session_entry',
    id: entry.id,
    current: entry.id === current.id,
    method: entry.method,
    browser: entry.browser ?? null,
    created_at: entry.createdAt.toISOString(),
    last_used_at: entry.lastUsedAt.toISOString(),
    expires_at: entry.expiresAt.toISOString(),
  }
}
