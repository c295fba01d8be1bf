import { join } from 'node:path'
import type { LogLevel, MasterKeySource } from '../config/config.ts'
import { runAsChild } from '../process/child.ts'
import { createLog, type Log } from '../process/log.ts'
import type { Hex } from '../receipts/hex.ts'
import { AccountKeys } from './account-keys.ts'
import type { Address } from './address.ts'
import { Custodian } from './custodian.ts'
import { HourlyValues } from './hourly-values.ts'
import { fingerprintOf, loadMasterKey, OtherMasterKeyError } from './master-key.ts'
import { OwnerRegister } from './owner-register.ts'
import { serveSigner } from './signer-server.ts'
import { signerFolder } from './signer-socket.ts'
import { SigningPolicy } from './signing-policy.ts'
import type { SigningTerms } from './signing-terms.ts'

/** Settings of the signer process. Amounts are decimal text, because the channel carries JSON. */
export type SignerSettings = {
  readonly dataDir: string
  readonly logLevel: LogLevel
  /** Undefined: the key in the data folder, created on first use. */
  readonly masterKey?: MasterKeySource | undefined
  /** The issuer that the ledger has published. Refuses a master key with another one, which would give every account another address. */
  readonly issuer?: Address | undefined
  /** Without a seller: the one whose key is derived from the master key. */
  readonly terms: Omit<SigningTerms, 'seller'> & { readonly seller?: Address | undefined }
  readonly payoutAddress?: Address | undefined
  readonly ownerWaitMs: number
  /** The relayer signs whole transactions, which this process does not do. If one is needed, its key is handed out. */
  readonly handOutRelayerKey?: boolean
  readonly limits: {
    readonly authorizationMax: string
    readonly withdrawalFeeMax: string
    readonly refillMax: string
  }
  /**
   * Hourly limits: to the seller, with the same amount again for refunds to wallets; out of the gateway, with the same amount again
   * for the returns to accounts that precede it; refills of the relayer's gas.
   */
  readonly hourlyLimits: {
    readonly authorizations: { readonly accountMax: string; readonly totalMax: string }
    readonly payingOut: { readonly accountMax: string; readonly totalMax: string }
    readonly refills: { readonly accountMax: string; readonly totalMax: string }
  }
}

export type SignerReady = {
  readonly pid: number
  readonly seller: Address
  readonly relayer: Address
  /** Address of the key that signs receipts. */
  readonly issuer: Address
  /** This key pays gas and owns nothing else. */
  readonly relayerKey?: Hex
  readonly masterKeyFingerprint: string
}

const countsMs = 60_000

runAsChild({ title: 'penny-sign', isInBackground: true, start })

async function start(settings: SignerSettings): Promise<SignerReady> {
  const masterKey = await loadMasterKey(settings.dataDir, settings.masterKey, (key) => {
    const issuer = new AccountKeys(key).ofRole('issuer').address
    if (settings.issuer !== undefined && settings.issuer !== issuer)
      throw new OtherMasterKeyError(issuer, settings.issuer)
  })
  const log = createLog(settings.logLevel)
  const keys = new AccountKeys(masterKey)
  const seller = settings.terms.seller ?? keys.ofRole('seller').address
  const { custodian } = await serveSigner(settings.dataDir, () =>
    openCustodian(settings, keys, { ...settings.terms, seller }, log),
  )
  setInterval(() => logCounts(custodian, log), countsMs)
  const relayer = keys.ofRole('relayer')
  return {
    pid: process.pid,
    seller,
    relayer: relayer.address,
    issuer: keys.ofRole('issuer').address,
    ...(settings.handOutRelayerKey === true ? { relayerKey: `0x${relayer.privateKey.toString('hex')}` } : {}),
    masterKeyFingerprint: fingerprintOf(masterKey),
  }
}

function openCustodian(settings: SignerSettings, keys: AccountKeys, terms: SigningTerms, log: Log): Custodian {
  const { limits, hourlyLimits, payoutAddress, ownerWaitMs, dataDir } = settings
  const { authorizations, payingOut, refills } = hourlyLimits
  return new Custodian({
    keys,
    policy: new SigningPolicy({
      terms,
      limits: {
        authorizationMax: BigInt(limits.authorizationMax),
        withdrawalFeeMax: BigInt(limits.withdrawalFeeMax),
        refillMax: BigInt(limits.refillMax),
      },
      payoutAddress,
      relayer: keys.ofRole('relayer').address,
    }),
    owners: new OwnerRegister({
      file: join(signerFolder(dataDir), 'owners.journal'),
      sealingKey: keys.sealingKey('owner register'),
      waitMs: ownerWaitMs,
    }),
    hours: {
      authorization: hourlyValues(authorizations),
      return: hourlyValues(payingOut),
      refund: hourlyValues(authorizations),
      payingOut: hourlyValues(payingOut),
      refill: hourlyValues(refills),
    },
    now: Date.now,
    onError: (error) => log.error({ err: error }, 'the signer failed to process a request'),
  })
}

function hourlyValues({ accountMax, totalMax }: { accountMax: string; totalMax: string }): HourlyValues {
  return new HourlyValues({ accountMax: BigInt(accountMax), totalMax: BigInt(totalMax) })
}

function logCounts(custodian: Custodian, log: Log): void {
  const { done, refused } = custodian.takeCounts()
  if (Object.keys(refused).length > 0) log.warn({ done, refused }, 'the signer refused requests')
  else if (Object.keys(done).length > 0) log.info({ done }, 'the signer signed')
}
